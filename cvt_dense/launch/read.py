"""Read a config file, ``--cfg-options`` and the flags as one config, which is the first step of a start.

The result is the config that the user gave. It is written into the work dir and into checkpoints, and a training from
it is the same training. :mod:`.adapt` applies changes for this start and machine to a copy.
"""
import argparse
import importlib.util
import os
from collections.abc import Callable
from typing import Any

from mmengine.config import Config
from mmengine.fileio.backends import backends

from ..errors import UserError
from ..nodes import dicts, type_name
from .cfg_options import merge_options
from .class_folders import count_class_folders, use_checkpoint_classes
from .command_line import check_exists

AMP_DTYPES = dict(fp16='float16', bf16='bfloat16')
VIS_BACKENDS = dict(tensorboard=('TensorboardVisBackend', 'tensorboard'), wandb=('WandbVisBackend', 'wandb'))


def read_config(args: argparse.Namespace, change: Callable[[Config], None] | None = None) -> Config:
    """Return the config of a command line.

    Args:
        args: flags of the tool, with ``config``; one that the tool does not have counts as not given.
        change: changes the config before the classes of its data sets are set, as reports do.

    Raises:
        UserError: if the file does not exist, or an option or a flag has no effect or no allowed value.
    """
    given = {name: value for name, value in vars(args).items() if value}
    if not os.path.isfile(args.config):
        raise UserError(f'config file {args.config!r} does not exist. Give a file of configs/ or one of your own.')
    cfg = Config.fromfile(args.config)
    merge_options(cfg, given.get('cfg_options', {}))
    if 'work_dir' in given:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', os.path.splitext(os.path.basename(args.config))[0])
    if 'data_root' in given:
        redirect_data_root(cfg, args.data_root)
    if change is not None:
        change(cfg)
    if 'checkpoint' in given:
        check_exists(args.checkpoint)
        use_checkpoint_classes(cfg, args.checkpoint)
    count_class_folders(cfg)
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    if 'amp' in given:
        set_amp(cfg, args.amp)
    if 'auto_scale_lr' in given:
        enable_auto_scale_lr(cfg)
    if 'vis_backend' in given:
        add_vis_backend(cfg, args.vis_backend)
    if 'out' in given:
        save_predictions(cfg, args.out)
    return cfg


def redirect_data_root(cfg: Config, data_root: str) -> None:
    """Make every data set and evaluator of ``cfg`` read from ``data_root``, at any depth of wrappers.

    Each ``data_root`` in ``cfg`` is replaced, and so is every other string of a ``*_dataloader`` or
    ``*_evaluator`` that starts with one of the old ones (such as an evaluator's ``ann_file``).

    Raises:
        UserError: ``data_root`` is not a folder, or ``cfg`` names no data root.
    """
    if not os.path.isdir(data_root):
        raise UserError(f'--data-root {data_root!r} is not a folder. Give the folder of the data set.')
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator')) and cfg[key] is not None]
    roots = [node.get('data_root') for node in dicts(parts)] + [cfg.get('data_root')]
    files = {node['ann_file'] for node in dicts(parts) if node.get('data_root') and node.get('ann_file')}
    old = {root.rstrip('/') for root in roots if root}
    if not old:
        raise UserError(f'--data-root {data_root!r}: {cfg.filename!r} sets no data_root that it could '
                        'replace; give its paths with --cfg-options.')

    def redirect(value: Any, names: bool = False) -> Any:
        """Return ``value`` with its paths redirected. With ``names``, the strings of lists are names of classes."""
        if isinstance(value, dict):
            for key, child in value.items():
                value[key] = redirect(child, names or key in ('metainfo', 'classes'))
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(child if names and isinstance(child, str) else redirect(child, names) for child in value)
        for root in sorted(old, key=len, reverse=True) if isinstance(value, str) else ():
            # A root without a slash at its end that the config has put before a name: 'data/mineannotations/val.json'.
            joined = value[len(root):].lstrip('/') in files and value.startswith(root)
            if value == root or value.startswith(root + '/') or joined:
                rest = value[len(root):]
                return data_root.rstrip('/') + ('/' if joined and not rest.startswith('/') else '') + rest
        return value

    redirect(parts)
    if cfg.get('data_root'):
        cfg.data_root = redirect(cfg.data_root)


def set_file_backend(cfg: Config, backend_args: dict[str, Any]) -> None:
    """Make every data set of ``cfg`` read images and label maps through one of MMEngine's file backends.

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
        reads = type_name(node) in ('LoadImageFromFile', 'LoadAnnotations', 'ImageDataset')
        if (reads or any(key in node for key in keys)) and node.get('backend_args') is None:
            node['backend_args'] = backend_args


def set_amp(cfg: Config, dtype: str) -> None:
    """Train in mixed precision.

    Args:
        cfg: changed in place.
        dtype: 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or 'default', which is 'fp16' for models with
            mmcv's operators and 'bf16' for others.
    """
    if dtype == 'default':
        dtype = 'fp16' if has_mmcv_operators(cfg) else 'bf16'
    if dtype == 'fp16':
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    else:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')


def has_mmcv_operators(cfg: Config) -> bool:
    """Return whether a model is MMDetection's or has parts of it, with RoIAlign, NMS or deformable attention."""
    types = [str(node['type']) for node in dicts([cfg.model]) if node.get('type')]
    return cfg.get('default_scope') == 'mmdet' or any(name.startswith('mmdet.') for name in types)


def check_amp(cfg: Config, dtype: str) -> None:
    """Check that the model and this machine have the mixed precision of ``--amp``.

    Args:
        cfg: a config with a model.
        dtype: see :func:`set_amp`.

    Raises:
        UserError: the model or the machine does not support it.
    """
    import torch
    operators = has_mmcv_operators(cfg)
    if dtype == 'bf16' and operators:
        raise UserError("--amp bf16: mmcv has this model's operators (RoIAlign, NMS, deformable attention) in float32 "
                        'and float16 only. Use --amp fp16 on a GPU, or leave the flag out.')
    if (dtype == 'fp16' or dtype == 'default' and operators) and not torch.cuda.is_available():
        raise UserError(f'--amp fp16 is for GPUs. Leave the flag out{"" if operators else ", or use --amp bf16"}.')


def enable_auto_scale_lr(cfg: Config) -> None:
    """Let the Runner scale the learning rate to the real total batch.

    Raises:
        UserError: the config does not set the total batch that its learning rate is for.
    """
    if 'base_batch_size' not in (cfg.get('auto_scale_lr') or {}):
        raise UserError('--auto-scale-lr: the config does not set the total batch that its learning rate is '
                        'for; set auto_scale_lr.base_batch_size with --cfg-options.')
    cfg.auto_scale_lr.enable = True


def add_vis_backend(cfg: Config, name: str) -> None:
    """Send the training curves to 'tensorboard' (files in the log folder) or 'wandb' too.

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
    if backend not in map(type_name, backends):
        cfg.visualizer.vis_backends = [*backends, dict(type=backend)]


def save_predictions(cfg: Config, folder: str) -> None:
    """Let the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: the config has no metric that can.
    """
    options = dict(
        CocoMetric=dict(outfile_prefix=os.path.join(folder, 'predictions')),
        IoUMetric=dict(output_dir=folder))
    evaluators = cfg.test_evaluator if isinstance(cfg.test_evaluator, list) else [cfg.test_evaluator]
    savers = [(evaluator, options[type_name(evaluator)]) for evaluator in evaluators
              if type_name(evaluator) in options]
    if not savers:
        raise UserError(f'--out {folder!r}: the metrics {[type_name(e) for e in evaluators]} cannot save predictions; '
                        f'{list(options)} can.')
    for evaluator, option in savers:
        evaluator.update(option)
