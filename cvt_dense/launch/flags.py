"""What the flags of a training and of a test set in a config."""
import argparse
import os
from collections.abc import Callable
from typing import Any

from mmengine.config import Config

from ..annotations.data_sets import COCO_METRICS
from ..config.read import check_exists, read_config
from ..config.walk import datasets_of, dicts, type_name
from ..errors import UserError

# The packages of PyTorch are imported where they are needed: a wrong flag is an error before that.
Change = Callable[[Config], None]


def read(flags: argparse.Namespace, checkpoint: str | None, change: Change | None = None) -> Config:
    """Return the config that flags name, with the flags that training and testing have in common.

    Args:
        flags: flags of the command line.
        checkpoint: the checkpoint that one of the flags names; it must exist.
        change: changes the config, as reports do.

    Raises:
        UserError: a file does not exist, or an option has no effect.
    """
    if checkpoint not in (None, 'auto'):
        check_exists(checkpoint)
    cfg = read_config(flags.config, flags.cfg_options, flags.data_root)
    cfg.work_dir = flags.work_dir or cfg.get('work_dir') or os.path.join(
        'work_dirs', os.path.splitext(os.path.basename(flags.config))[0])
    if change is not None:
        change(cfg)
    return cfg


def read_training(flags: argparse.Namespace, change: Change | None = None) -> Config:
    """Return the config of a training with its flags; a training from that config is the same training.

    Args:
        flags: flags of ``tools/train.py``. ``amp`` is 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or
            'default', which is 'fp16' for detectors, because compiled mmcv has no operators for bfloat16, and for
            configs in float16, and 'bf16' for others.
        change: see :func:`read`.

    Raises:
        UserError: see :func:`read`; or the config lacks what a flag needs.
    """
    cfg = read(flags, flags.resume, change)
    if flags.amp == 'fp16' or flags.amp == 'default' and {'mmdet', 'float16'} & {
            cfg.get('default_scope'), str(cfg.model.type).split('.')[0], cfg.optim_wrapper.get('dtype')}:
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    elif flags.amp:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
    if flags.auto_scale_lr:
        cfg.auto_scale_lr = dict(cfg.get('auto_scale_lr') or {}, enable=True)
        if not cfg.auto_scale_lr.get('base_batch_size'):
            raise UserError('--auto-scale-lr: set auto_scale_lr.base_batch_size, the images per step that the learning '
                            'rate of the config is for.')
    if flags.val_loss and 'ValLossHook' not in map(type_name, cfg.get('custom_hooks') or []):  # a dump has it
        add_hook(cfg, type='cvt_dense.ValLossHook')
    return cfg


def read_test(flags: argparse.Namespace, change: Change | None = None) -> Config:
    """Return the config of a test with its flags, but for those of :func:`cvt_dense.inference.model.prepare_model`.

    Args:
        flags: flags of ``tools/test.py``.
        change: see :func:`read`.

    Raises:
        UserError: flags do not go together, or are not for this config.
    """
    cfg = read(flags, flags.checkpoint, change)
    cfg.load_from, cfg.resume = flags.checkpoint, False
    if flags.out:
        save_predictions(cfg, flags.out)
    set_views(cfg, flags.tta, flags.slice, flags.overlap)
    if flags.fuse:
        add_hook(cfg, type='cvt_dense.FuseHook')
    return cfg


def add_hook(cfg: Config, **hook: Any) -> None:
    """Add a hook to ``custom_hooks``."""
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]


def save_predictions(cfg: Config, folder: str) -> None:
    """Let the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: the config has no metric that can.
    """
    evaluators = cfg.test_evaluator if isinstance(cfg.test_evaluator, list) else [cfg.test_evaluator]
    types = [type_name(evaluator) for evaluator in evaluators]
    for evaluator, name in zip(evaluators, types):
        if name in COCO_METRICS:
            evaluator['outfile_prefix'] = os.path.join(folder, 'predictions')
        elif name == 'IoUMetric':  # whose own files have no folders
            add_hook(cfg, type='cvt_dense.SaveLabelMapsHook', folder=folder)
    if not {*COCO_METRICS, 'IoUMetric'} & set(types):
        raise UserError(f'--out {folder!r}: none of the metrics {types} can save predictions; CocoMetric and IoUMetric '
                        'can.')


def set_views(cfg: Config, tta: bool, size: int | None, overlap: float) -> None:
    """Let the test data sets load the views of the config's test-time augmentation, or whole images to be sliced.

    Args:
        cfg: changed in place. Of several test data sets that are joined, the first one's pipeline prepares the slices.
        tta: whether ``tta_pipeline`` is used.
        size: side in pixels of the slices that larger images are cut into; None: they are not.
        overlap: overlap of neighbouring slices, as a fraction of ``size``.

    Raises:
        UserError: both are asked for; the config has no test-time augmentation, or none that is right for its head; or
            slices are not for this task.
    """
    if tta and size is not None:
        raise UserError('--slice with --tta: both decide what the network sees of an image; leave one of them out.')
    datasets = datasets_of(cfg, 'test')
    if tta:
        if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
            raise UserError(f'--tta: {cfg.filename!r} lacks tta_model or tta_pipeline: set both, or leave --tta out.')
        if any(node.get('out_channels') == 1 for node in dicts(cfg.model.get('decode_head'))):
            raise UserError('--tta: MMSegmentation would apply the sigmoid of decode_head.out_channels=1 twice. Test '
                            'without --tta, or train two classes with softmax (without out_channels).')
        for dataset in datasets:
            dataset.pipeline = cfg.tta_pipeline
    if size is not None and datasets:
        if cfg.get('default_scope') not in ('mmdet', 'mmseg'):
            raise UserError(f'--slice {size}: slices are for detectors and segmentors, and {cfg.filename} has '
                            f'default_scope={cfg.get("default_scope")!r}: allowed are mmdet and mmseg.')
        pipeline = [step for step in datasets[0].pipeline[1:] if type_name(step) != 'LoadAnnotations']
        for dataset in datasets:
            dataset.pipeline = [step for step in dataset.pipeline if type_name(step).startswith(('Load', 'Pack'))]
        cfg.tta_model = dict(type='cvt_dense.SlicedModel', size=size, overlap=overlap, pipeline=pipeline)
