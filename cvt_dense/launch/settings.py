"""The one writer of a config, between its file and the Runner.

``complete`` is what the user asked for: the file with the flags. That is written into the work dir and into
checkpoints, and to train from it is the same run again. ``adapt`` makes the copy that runs here and now: without a
GPU, alone or one of many, continuing or testing. Nothing of that is written down.
"""
import argparse
import copy
import importlib.util
import os
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.fileio import list_from_file
from mmengine.fileio.backends import backends
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import dicts, type_name
from ..palette import choose_palette
from .class_folders import count_class_folders
from .overrides import read_config
from .work_dir import test_folder, was_restarted


def load_config(args: argparse.Namespace) -> Config:
    """The complete config that a command line asks for."""
    return complete(read_config(args.config, args.cfg_options), args)


def complete(cfg: Config, args: argparse.Namespace) -> Config:
    """``cfg``, changed in place to what the flags ask for; doing it twice equals once.

    Args:
        args: flags of the tool; one that it does not have counts as not given.
    """
    if getattr(args, 'work_dir', None) is not None:
        cfg.work_dir = args.work_dir
    elif cfg.get('work_dir') is None:
        cfg.work_dir = os.path.join('work_dirs', os.path.splitext(os.path.basename(args.config))[0])
    if getattr(args, 'data_root', None) is not None:
        redirect_data_root(cfg, args.data_root)
    count_class_folders(cfg)
    set_palette(cfg)
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    if _given(args, 'amp'):
        set_amp(cfg, args.amp)
    if _given(args, 'auto_scale_lr'):
        enable_auto_scale_lr(cfg)
    if _given(args, 'vis_backend'):
        add_vis_backend(cfg, args.vis_backend)
    if _given(args, 'out'):
        save_predictions(cfg, args.out)
    return cfg


def adapt(cfg: Config, args: argparse.Namespace) -> Config:
    """A copy of a complete ``cfg`` as this start needs it on this machine; doing it twice equals once."""
    import torch
    cfg = copy.deepcopy(cfg)
    cfg.launcher = args.launcher
    if _given(args, 'checkpoint'):
        cfg.load_from, cfg.resume = args.checkpoint, False
        cfg.work_dir = test_folder(cfg, args)
        from .inference import set_inference
        set_inference(cfg, args)
    if hasattr(args, 'resume'):
        set_resume(cfg, args.resume)
    if _given(args, 'tta'):
        set_tta_pipeline(cfg)
    if _given(args, 'corrupt'):
        from .inference import set_corruptions
        set_corruptions(cfg, args)
    if _given(args, 'amp'):
        check_amp(cfg, args.amp)
    set_number_of_classes(cfg)
    adapt_loaders(cfg)
    adapt_optimizer(cfg)
    if cfg.launcher != 'none' and not torch.cuda.is_available():
        adapt_to_gloo(cfg)
    return cfg


def _given(args: argparse.Namespace, flag: str) -> bool:
    return bool(getattr(args, flag, None))


# -- data root -------------------------------------------------------------------------------------


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
    files = {node['ann_file'] for node in dicts(parts) if node.get('data_root') and node.get('ann_file')}
    old = {root.rstrip('/') for root in roots if root}
    if not old:
        raise UserError(f'--data-root {data_root!r}: {cfg.filename!r} sets no data_root that it could '
                        'replace; give its paths with --cfg-options.')

    def redirect(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(redirect(child) for child in value)
        for root in sorted(old, key=len, reverse=True) if isinstance(value, str) else ():
            # A root without a slash at its end that the config has put before a name: 'data/mineannotations/val.json'.
            joined = value[len(root):].lstrip('/') in files and value.startswith(root)
            if value == root or value.startswith(root + '/') or joined:
                rest = value[len(root):]
                return data_root.rstrip('/') + ('/' if joined and not rest.startswith('/') else '') + rest
        return value

    for node in dicts(parts):
        for key, value in node.items():
            node[key] = redirect(value)
    if cfg.get('data_root'):
        cfg.data_root = redirect(cfg.data_root)


def set_palette(cfg: Config) -> None:
    """Gives the classes that ``cfg`` names colours, which all that draws takes, unless it names those too.

    Otherwise MMDetection takes COCO's first colours, two reds among them, and MMSegmentation random ones.
    """
    for node in dicts([cfg[key] for key in cfg if key.endswith('_dataloader')]):
        metainfo = node.get('metainfo')
        classes = metainfo.get('classes') if isinstance(metainfo, dict) else None
        if isinstance(classes, str) and os.path.isfile(classes):
            classes = list_from_file(classes)
        if isinstance(classes, (list, tuple)) and metainfo.get('palette') is None:
            metainfo.palette = choose_palette(classes)


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
        reads = type_name(node) in ('LoadImageFromFile', 'LoadAnnotations', 'ImageDataset')
        if (reads or any(key in node for key in keys)) and node.get('backend_args') is None:
            node['backend_args'] = backend_args


# -- precision and learning rate -------------------------------------------------------------------

AMP_DTYPES = dict(fp16='float16', bf16='bfloat16')


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
        UserError: they do not.
    """
    import torch
    operators = has_mmcv_operators(cfg)
    if dtype == 'bf16' and operators:
        raise UserError("--amp bf16: mmcv has this model's operators (RoIAlign, NMS, deformable attention) in float32 "
                        'and float16 only. Use --amp fp16 on a GPU, or leave the flag out.')
    if (dtype == 'fp16' or dtype == 'default' and operators) and not torch.cuda.is_available():
        raise UserError(f'--amp fp16 is for GPUs. Leave the flag out{"" if operators else ", or use --amp bf16"}.')


def enable_auto_scale_lr(cfg: Config) -> None:
    """Lets the Runner scale the learning rate to the real total batch.

    Raises:
        UserError: the config does not say which total batch its learning rate is for.
    """
    if 'base_batch_size' not in (cfg.get('auto_scale_lr') or {}):
        raise UserError('--auto-scale-lr: the config does not say which total batch its learning rate is '
                        'for; set auto_scale_lr.base_batch_size with --cfg-options.')
    cfg.auto_scale_lr.enable = True


# -- watching and predictions -------------------------------------------------------------------------


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
    if backend not in map(type_name, backends):
        cfg.visualizer.vis_backends = [*backends, dict(type=backend)]


def save_predictions(cfg: Config, folder: str) -> None:
    """Lets the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

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
        raise UserError(f'--out {folder!r}: of the metrics {[type_name(e) for e in evaluators]} none saves '
                        f'predictions; {list(options)} do.')
    for evaluator, option in savers:
        evaluator.update(option)


# -- this start, on this machine -------------------------------------------------------------------


def set_resume(cfg: Config, checkpoint: str | None) -> None:
    """Continues a run: from ``checkpoint``, or with 'auto' from the last complete one in the work dir.

    A process that torchrun has started again after a crash (``--max-restarts``) always continues from
    the work dir. Where that holds no checkpoint yet, the run starts from its beginning and says so.
    """
    restarted = was_restarted()
    if checkpoint is None and not restarted:
        return
    from ..engine.checkpoint import find_checkpoint
    found = find_checkpoint(cfg.work_dir) if restarted or checkpoint == 'auto' else None
    if found is None and checkpoint != 'auto':
        found = checkpoint
    if found is None:
        print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.',
                  logger='current')
        return
    cfg.resume, cfg.load_from = True, found


def set_tta_pipeline(cfg: Config) -> None:
    """Lets the test data set load every view of the config's ``tta_pipeline``.

    Raises:
        UserError: the config has no test-time augmentation.
    """
    if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
        raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline, which say how the '
                        'predictions for several sizes and mirror images are put together.')
    dataset = cfg.test_dataloader.dataset
    while 'dataset' in dataset:
        dataset = dataset.dataset
    if not any(type_name(node) == 'TestTimeAug' for node in dicts(dataset.pipeline)):
        follow_test_size(cfg.tta_pipeline, dataset.pipeline)
        dataset.pipeline = cfg.tta_pipeline


def follow_test_size(tta_pipeline: list[dict[str, Any]], test_pipeline: list[dict[str, Any]]) -> None:
    """Makes the sizes of a test-time augmentation those that it has, relative to its middle one, of the test's size.

    A ``tta_pipeline`` with the test's size among its sizes stays as it is. Otherwise it was written for another test
    size: the lower middle one of its sizes, which our recipes, MMDetection's and MMSegmentation's have there. The
    log names the sizes.
    """
    size = next((_scale(node) for node in dicts(test_pipeline) if _scale(node)), None)
    views = [node for node in dicts(tta_pipeline) if _scale(node)]
    if size is None or not views:
        print_log('--tta: sizes as tta_pipeline has them; it or the test pipeline resizes to no fixed scale.',
                  logger='current')
        return
    sizes = sorted((_scale(node) for node in views), key=min)
    if size not in sizes:
        base = min(sizes[(len(sizes) - 1) // 2])
        for node in views:
            ratio = min(_scale(node)) / base
            node['scale'] = tuple(round(side * ratio) for side in size)
    print_log(f'--tta: tested at {[_scale(node) for node in views]}; the test pipeline has {size}.', logger='current')


def _scale(transform: dict[str, Any]) -> tuple[int, int] | None:
    """The one size that a transform resizes to; None if it has none or several."""
    scale = transform.get('scale')
    if isinstance(scale, int):
        return scale, scale
    fixed = isinstance(scale, (list, tuple)) and len(scale) == 2 and all(isinstance(side, int) for side in scale)
    return tuple(scale) if fixed else None


def wrap_for_tta(cfg: Config) -> None:
    """Puts the config's ``tta_model`` around the model: last, because checkpoints are those of the model inside."""
    cfg.model = ConfigDict(**cfg.tta_model, module=cfg.model)


def set_number_of_classes(cfg: Config) -> None:
    """Tells each image data set how many outputs the classifier has, so that it can refuse other labels."""
    for loader in (cfg[key] for key in cfg if key.endswith('_dataloader')):
        for node in dicts(loader):
            if type_name(node) == 'ImageDataset':
                node.setdefault('num_classes', cfg.model.get('num_classes'))


def adapt_loaders(cfg: Config) -> None:
    """Leaves out what PyTorch's data loader refuses without workers, and what it warns of without CUDA or cores."""
    import torch
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 1
    for loader in (cfg[key] for key in cfg if key.endswith('_dataloader') and cfg[key]):
        loader.num_workers = min(loader.get('num_workers', 0), cores)
        if loader.num_workers == 0:
            loader.pop('persistent_workers', None)
        if not torch.cuda.is_available():
            loader.pop('pin_memory', None)


def adapt_optimizer(cfg: Config) -> None:
    """Float32 where there is no GPU, which MMEngine's AmpOptimWrapper needs; a whole optimizer in a single process."""
    import torch
    wrapper = cfg.get('optim_wrapper') or {}
    if type_name(wrapper) == 'AmpOptimWrapper' and not torch.cuda.is_available():
        wrapper.type = 'OptimWrapper'
        for key in ('dtype', 'loss_scale', 'use_fsdp'):
            wrapper.pop(key, None)
        print_log('No GPU: training in float32 instead of mixed precision.', logger='current', level=30)
    optimizer = wrapper.get('optimizer') or {}
    if cfg.launcher == 'none' and type_name(optimizer) == 'ZeroRedundancyOptimizer':
        optimizer.type = optimizer.pop('optimizer_type')  # one process: no others to share the state with


def adapt_to_gloo(cfg: Config) -> None:
    """Several processes without CUDA: DDP leaves the model where it is, and SyncBN, which has no CPU kernel, is BN.

    MMEngine does the latter itself in a single process.
    """
    wrapper = dict(broadcast_buffers=False, find_unused_parameters=cfg.get('find_unused_parameters', False))
    wrapper.update(cfg.get('model_wrapper_cfg') or {}, device_ids=None)
    cfg.model_wrapper_cfg = wrapper
    cfg.sync_bn = None
    synced = [node for node in dicts(cfg.model) if type_name(node) in ('SyncBN', 'MMSyncBN')]
    for node in synced:
        node['type'] = 'BN'
    if synced and os.environ.get('RANK', '0') == '0':
        print_log('SyncBN has no CPU kernel and was replaced by BN: statistics are those of each process.',
                  logger='current', level=30)
