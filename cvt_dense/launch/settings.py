"""Everything that writes into a config between its file and the Runner."""
import argparse
import importlib.util
import os
from collections.abc import Callable
from typing import Any

import torch
from mmengine.config import Config
from mmengine.fileio.backends import backends
from mmengine.logging import print_log

from ..engine.atomic_files import find_checkpoint
from ..errors import UserError
from .check_data import dicts


def load_config(args: argparse.Namespace) -> Config:
    """The config file with the common flags applied."""
    if not os.path.isfile(args.config):
        raise UserError(f'config file {args.config!r} does not exist.')
    cfg = Config.fromfile(args.config)
    if args.cfg_options:
        cfg.merge_from_dict(args.cfg_options)
    if args.data_root is not None:
        redirect_data_root(cfg, args.data_root)
    for key in cfg:
        if key.endswith('_dataloader') and cfg[key]:
            if cfg[key].get('num_workers', 0) == 0:
                cfg[key].pop('persistent_workers', None)  # PyTorch refuses it without workers
            if not torch.cuda.is_available():
                cfg[key].pop('pin_memory', None)  # PyTorch warns that it has no effect
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    cfg.launcher = args.launcher
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    if args.work_dir is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', os.path.splitext(os.path.basename(args.config))[0])
    return cfg


# -- data root -------------------------------------------------------------------------------------


def _map_strings(node: Any, function: Callable[[str], str]) -> Any:
    """``node`` with ``function`` applied to every string value at any depth; changes dicts and lists."""
    if isinstance(node, str):
        return function(node)
    if isinstance(node, dict):
        for key in node:
            node[key] = _map_strings(node[key], function)
    elif isinstance(node, list):
        node[:] = [_map_strings(value, function) for value in node]
    elif isinstance(node, tuple):
        return tuple(_map_strings(value, function) for value in node)
    return node


def redirect_data_root(cfg: Config, data_root: str) -> None:
    """Makes every data set and evaluator of ``cfg`` read from ``data_root``, at any depth of wrappers.

    Each ``data_root`` in ``cfg`` is replaced, and so is every other string of a ``*_dataloader`` or
    ``*_evaluator`` that starts with one of the old ones (an evaluator's ``ann_file``, say).

    Raises:
        UserError: ``data_root`` is not a folder, or ``cfg`` names no data root.
    """
    if not os.path.isdir(data_root):
        raise UserError(f'--data-root {data_root!r} is not a folder.')
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator')) and cfg[key] is not None]
    roots = [node.get('data_root') for node in dicts(parts)] + [cfg.get('data_root')]
    old = {root.rstrip('/') for root in roots if root}
    if not old:
        raise UserError(f'--data-root {data_root!r}: {cfg.filename!r} sets no data_root that it could '
                        'replace; give its paths with --cfg-options.')

    def redirect(value: str) -> str:
        for root in sorted(old, key=len, reverse=True):
            if value == root or value.startswith(root + '/'):
                return data_root.rstrip('/') + value[len(root):]
        return value

    _map_strings(parts, redirect)
    if cfg.get('data_root'):
        cfg.data_root = redirect(cfg.data_root)


def set_file_backend(cfg: Config, backend_args: dict[str, Any]) -> None:
    """Makes every data set of ``cfg`` read images and label maps through one of MMEngine's file backends.

    Annotation files too, of MMDetection and MMSegmentation, unless the backend only looks up keys, as LMDB does.

    Args:
        cfg: changed in place, except where a data set or transform has ``backend_args`` of its own.
        backend_args: arguments of ``mmengine.fileio.get_file_backend``.

    Raises:
        UserError: MMEngine has no such backend.
    """
    name = backend_args.get('backend', 'local')
    if name not in backends:
        raise UserError(f'backend_args.backend={name!r}: allowed are {sorted(backends)}.')
    keys = ('data_prefix', 'ann_file') if hasattr(backends[name], 'get_local_path') else ()
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator', '_pipeline'))]
    for node in dicts(parts):
        reads = str(node.get('type')).split('.')[-1] in ('LoadImageFromFile', 'LoadAnnotations', 'ImageDataset')
        if (reads or any(key in node for key in keys)) and node.get('backend_args') is None:
            node['backend_args'] = backend_args


# -- precision and learning rate -------------------------------------------------------------------

AMP_DTYPES = dict(fp16='float16', bf16='bfloat16')


def set_amp(cfg: Config, dtype: str | None) -> None:
    """Mixed precision: ``dtype`` 'fp16' or 'bf16' switches it on, None keeps the config's choice.

    Without an accelerator MMEngine has none, so training continues in float32 and says so.
    """
    wrapper = cfg.optim_wrapper
    if dtype is not None:
        wrapper.update(type='AmpOptimWrapper', dtype=AMP_DTYPES[dtype],
                       loss_scale='dynamic' if dtype == 'fp16' else dict(enabled=False))
    if str(wrapper.get('type')).endswith('AmpOptimWrapper') and not torch.cuda.is_available():
        print_log('No GPU: training in float32 instead of mixed precision.', logger='current', level=30)
        wrapper.type = 'OptimWrapper'
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)


def scale_lr(cfg: Config, enable: bool = False) -> None:
    """Lets MMEngine scale the learning rate to the real total batch, gradient accumulation included.

    MMEngine multiplies by (batch per process * processes) / ``auto_scale_lr.base_batch_size`` and
    knows nothing of ``optim_wrapper.accumulative_counts``, so the base is divided by that.
    """
    auto_scale_lr = cfg.get('auto_scale_lr') or {}
    if enable:
        if 'base_batch_size' not in auto_scale_lr:
            raise UserError('--auto-scale-lr: the config does not say which total batch its learning rate is '
                            'for; set auto_scale_lr.base_batch_size with --cfg-options.')
        auto_scale_lr.enable = True
    counts = cfg.optim_wrapper.get('accumulative_counts', 1)
    if auto_scale_lr.get('enable') and counts > 1:
        auto_scale_lr.base_batch_size /= counts


# -- resuming and watching -------------------------------------------------------------------------


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continues a run: from ``checkpoint``, or with 'auto' from the last complete one in the work dir.

    A process that torchrun has started again after a crash (``--max-restarts``) always continues from
    the work dir. Where that holds no checkpoint yet, the run starts from its beginning and says so.
    """
    restarted = int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)) > 0
    if checkpoint is None and not restarted:
        return
    found = find_checkpoint(cfg.work_dir) if restarted or checkpoint == 'auto' else None
    if found is None and checkpoint != 'auto':
        found = checkpoint
    if found is None:
        print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.',
                  logger='current')
        return
    cfg.resume, cfg.load_from = True, found


VIS_BACKENDS = dict(tensorboard=('TensorboardVisBackend', 'tensorboard'), wandb=('WandbVisBackend', 'wandb'))


def add_vis_backend(cfg: Config, name: str) -> None:
    """Sends the training curves to 'tensorboard' (files in the log folder) or 'wandb' too.

    Raises:
        UserError: the package for it is not installed.
    """
    backend, package = VIS_BACKENDS[name]
    if importlib.util.find_spec(package) is None:
        raise UserError(f'--vis-backend {name} needs the package {package!r}, which is not installed: run '
                        f'"pip install {package}", or leave the flag out (curves are always written to '
                        'vis_data/scalars.json in the log folder).')
    cfg.visualizer = cfg.get('visualizer') or dict(type='Visualizer')
    backends = cfg.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
    cfg.visualizer.vis_backends = [*backends, dict(type=backend)]


# -- predictions ------------------------------------------------------------------------------------


def save_predictions(cfg: Config, folder: str) -> None:
    """Lets the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: the config has no metric that can.
    """
    options = dict(
        CocoMetric=dict(outfile_prefix=os.path.join(folder, 'predictions')),
        IoUMetric=dict(output_dir=folder))
    evaluators = cfg.test_evaluator if isinstance(cfg.test_evaluator, list) else [cfg.test_evaluator]
    savers = [(evaluator, options[name]) for evaluator in evaluators
              for name in [evaluator.type.split('.')[-1]] if name in options]
    if not savers:
        raise UserError(f'--out {folder!r}: of the metrics {[e.type for e in evaluators]} none saves '
                        f'predictions; {list(options)} do.')
    for evaluator, option in savers:
        evaluator.update(option)
