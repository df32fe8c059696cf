"""From a config file and command line flags to a checked Runner: what tools/train.py and test.py share."""
import argparse
import copy
import importlib.util
import os
import sys
import textwrap
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from mmengine.config import Config, ConfigDict, DictAction
from mmengine.fileio.backends import backends
from mmengine.logging import print_log
from mmengine.registry import DATASETS, MODELS, RUNNERS, init_default_scope
from mmengine.runner import CheckpointLoader, Runner
from tqdm import tqdm

from .. import compat  # before whatever the config imports
from ..checkpoint import CheckpointError
from ..models.loading import select_weights
from .checkpoint_hook import find_checkpoint
from .data_check import check_annotations, check_files, dicts
from .errors import UserError
from .runner import ContinuingRunner

# What wrong settings and files raise while datasets, model and runner are built.
SETUP_ERRORS = (UserError, ValueError, TypeError, KeyError, AttributeError, AssertionError, ImportError,
                OSError, SyntaxError, RuntimeError)
STAGES = ('train', 'val', 'test')


@contextmanager
def report_errors(*errors: type) -> Iterator[None]:
    """Ends the process with the message of any of ``errors`` on stderr and exit code 2; no traceback."""
    try:
        yield
    except errors as error:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        if not isinstance(error, (UserError, ValueError, OSError)):
            message = f'{type(error).__name__}: {message}'
        sys.stdout.flush()
        tqdm.write('error: ' + ' '.join(message.split()), file=sys.stderr)  # above a progress bar, if there is one
        sys.exit(2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that training and testing have in common."""
    parser.add_argument('--work-dir', help='folder of logs and checkpoints (default: work_dirs/<config '
                                           'name>)')
    parser.add_argument('--data-root', metavar='DIR', help="read every data set and evaluator's files from "
                                                           "DIR instead of the config's data_root")
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
                        help='override settings, e.g. train_dataloader.batch_size=32 model.num_classes=50')
    parser.add_argument('--launcher', choices=('none', 'pytorch', 'slurm'), default='none',
                        help='what started the processes of a distributed run (tools/dist_*.sh pass pytorch)')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)


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


def set_file_backend(cfg: Config, backend_args: Dict[str, Any]) -> None:
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


def set_amp(cfg: Config, dtype: Optional[str]) -> None:
    """Mixed precision: ``dtype`` 'fp16' or 'bf16' switches it on, None keeps the config's choice.

    Without an accelerator MMEngine has none, so training continues in float32 and says so.
    """
    wrapper = cfg.optim_wrapper
    if dtype is not None:
        wrapper.update(type='AmpOptimWrapper', dtype=AMP_DTYPES[dtype],
                       loss_scale='dynamic' if dtype == 'fp16' else 1.)
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


def set_resume(cfg: Config, checkpoint: Optional[str]) -> None:
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


# -- checks before the run -------------------------------------------------------------------------


def build_datasets(cfg: Config, stages: List[str]) -> Dict[str, Any]:
    """The data sets of ``stages``, built and checked before a run writes anything."""
    datasets = {}
    num_classes = cfg.model.get('num_classes')
    for stage in stages:
        loader = cfg.get(f'{stage}_dataloader')
        if not loader or not isinstance(loader.get('dataset'), dict):
            continue
        for node in dicts(loader):
            if node.get('type') == 'cvt_dense.ImageDataset':
                node.setdefault('num_classes', num_classes)
        check_annotations(cfg, stage)
        dataset = DATASETS.build(copy.deepcopy(loader.dataset))
        if hasattr(dataset, 'full_init'):
            dataset.full_init()
        backend_args = [node['backend_args'] for node in dicts(loader.dataset) if node.get('backend_args')]
        check_files(dataset, cfg.model, f'{stage}_dataloader', *backend_args[:1])
        if not len(dataset):
            raise UserError(f'the data set of {stage}_dataloader is empty: {dict(loader.dataset)}. Check its '
                            'data_root and annotation file.')
        datasets[stage] = dataset
    classes = {stage: (getattr(dataset, 'metainfo', None) or {}).get('classes')
               for stage, dataset in datasets.items()}
    if num_classes is not None:
        for stage, names in classes.items():
            if names and len(names) < num_classes:
                print_log(f'{stage}: {len(names)} classes on disk under a head of {num_classes} outputs.',
                          logger='current')
        if classes.get('train') and classes.get('val') and classes['train'] != classes['val']:
            odd = sorted(set(classes['train']) ^ set(classes['val']))
            raise UserError(f'the class folders for training ({len(classes["train"])}) and validation '
                            f'({len(classes["val"])}) differ, so their numbers would too: {odd[:5]} are in '
                            'one of them only. Give both the same folders.')
    return datasets


def check_checkpoint(cfg: Config, path: str, strict: bool) -> None:
    """Compares a checkpoint's weights with the config's model.

    MMEngine loads with ``strict=False``: what does not fit is left out and training starts anyway.

    Args:
        path: checkpoint file or address.
        strict: every weight must be there and fit (resuming, testing); otherwise only CvT's must, as far
            as :func:`cvt_dense.checkpoint.compare` says, and heads may differ (fine-tuning).

    Raises:
        UserError, CheckpointError: no such file, not a checkpoint, or one for another architecture.
    """
    if '://' not in path and not os.path.exists(path):
        raise UserError(f'checkpoint {path!r} does not exist.')
    # First, because it registers what reads the authors' and other formats.
    model = MODELS.build(copy.deepcopy(cfg.model))
    try:
        tensors = select_weights(CheckpointLoader.load_checkpoint(path, map_location='cpu'), source=path)
        given = {name: value.shape for name, value in tensors.items()}
    except CheckpointError as error:
        raise UserError(str(error)) from error
    except Exception as error:  # whatever a file that is no checkpoint makes torch.load raise
        raise UserError(
            f'{path!r} cannot be read as a checkpoint ({type(error).__name__}: {error}).') from error
    for name, module in model.named_modules():
        if getattr(module, 'checks_loading', False):  # CvT's weights, as loading will check them
            prefix = name and f'{name}.'
            own = {key[len(prefix):]: value for key, value in tensors.items() if key.startswith(prefix)}
            module.check_loading(own, path)
    if not strict:
        return
    wanted = {name: value.shape for name, value in model.state_dict().items()}
    missing = [name for name in wanted if name not in given]
    unknown = [name for name in given if name not in wanted]
    misfits = [f'{name} {tuple(given[name])} instead of {tuple(wanted[name])}'
               for name in wanted if name in given and given[name] != wanted[name]]
    if missing or unknown or misfits:
        details = [f'{len(names)} {what}, e.g. {names[0]}' for what, names in (
            ('missing', missing), ('not in the model', unknown), ('of another shape', misfits)) if names]
        raise UserError(f'checkpoint {path!r} is for another architecture than the config: of {len(wanted)} '
                        f'weights {"; ".join(details)}. Use the config that it was trained with, or another '
                        'checkpoint.')


def build_runner(cfg: Config, stages: List[str], tta: bool = False) -> Runner:
    """Checks everything that a run needs, then builds its Runner.

    Args:
        cfg: the complete config; ``resume`` and ``load_from`` as the Runner understands them.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.
        tta: test with the config's ``tta_model`` and ``tta_pipeline``.

    Raises:
        UserError, ValueError, ...: see ``SETUP_ERRORS``; nothing has been written then.
    """
    compat.setup_distributed(cfg, cfg.launcher)
    optimizer = (cfg.get('optim_wrapper') or {}).get('optimizer') or {}
    if cfg.launcher == 'none' and optimizer.get('type') == 'ZeroRedundancyOptimizer':
        optimizer.type = optimizer.pop('optimizer_type')  # one process: no others to share the state with
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    if tta:
        if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
            raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline, which say how the '
                            'predictions for several sizes and mirror images are put together.')
        cfg.test_dataloader.dataset.pipeline = cfg.tta_pipeline
    datasets = build_datasets(cfg, stages)
    checkpoint = cfg.get('load_from')
    if checkpoint is not None:
        check_checkpoint(cfg, checkpoint, strict=bool(cfg.get('resume')) or 'train' not in stages)
    else:
        MODELS.build(copy.deepcopy(cfg.model))
    if tta:
        cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)
    runner = RUNNERS.build(cfg) if 'runner_type' in cfg else ContinuingRunner.from_cfg(cfg)
    for stage, dataset in datasets.items():  # a scan of ImageNet or of COCO's JSON is not done twice
        getattr(runner, f'_{stage}_dataloader')['dataset'] = dataset
    return runner
