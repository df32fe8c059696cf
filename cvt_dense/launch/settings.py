"""Read the config of a training or of a test, with the settings of the run in it."""
import os
from typing import Any

from mmengine.config import Config

from ..config.read import check_exists, read_config
from ..config.walk import class_of, datasets_of
from ..errors import UserError
from .checks.settings import check_paths, check_variables
from .runs import Run, TestRun, TrainRun

# The packages of PyTorch are imported where they are needed: a wrong setting is an error before that.


def read(run: Run, checkpoint: str | None, *stages: str) -> Config:
    """Return the config of a run, with the settings that training and testing have in common.

    Args:
        run: settings of the run.
        checkpoint: the checkpoint that one of them names; it must exist.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a file does not exist, or an option has no effect.
    """
    if checkpoint not in (None, 'auto'):
        check_exists(checkpoint)
    cfg = read_config(str(run.config), run.options, run.data_root and str(run.data_root))
    cfg.work_dir = str(run.work_dir or cfg.get('work_dir') or os.path.join(
        'work_dirs', os.path.splitext(os.path.basename(run.config))[0]))
    if run.check:
        check_paths(cfg, stages)
        check_variables(cfg)
    return cfg


def read_training(run: TrainRun) -> Config:
    """Return the config of a training with its settings; a training from that config is the same training.

    Its ``resume`` is 'auto', a checkpoint or None, and not True as in a config of MMEngine's.

    Raises:
        UserError: see :func:`read`; or the config lacks what a setting needs.
    """
    cfg = read(run, run.resume and str(run.resume), 'train', 'val')
    if cfg.get('train_dataloader') is None:
        raise UserError(f'{run.config} has no train_dataloader. Give the config of a training.')
    if run.amp == 'fp16' or run.amp == 'default' and {'mmdet', 'float16'} & {
            cfg.get('default_scope'), str(cfg.model.type).split('.')[0], cfg.optim_wrapper.get('dtype')}:
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    elif run.amp:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
    if run.auto_scale_lr:
        cfg.auto_scale_lr = dict(cfg.get('auto_scale_lr') or {}, enable=True)
        if not cfg.auto_scale_lr.get('base_batch_size'):
            raise UserError('--auto-scale-lr: set auto_scale_lr.base_batch_size, the images per step that the learning '
                            'rate of the config is for.')
    if run.val_loss and not hooks_of(cfg, 'ValLossHook'):  # a dump has it
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='cvt_dense.ValLossHook')]
    return cfg


def read_test(run: TestRun) -> Config:
    """Return the config of a test; what its settings do to the model and its predictions, :mod:`.wrap` does.

    Raises:
        UserError: settings do not go together, or are not for this config.
    """
    if run.tta and run.slice is not None:
        raise UserError('--slice with --tta: both decide what the network sees of an image; leave one of them out.')
    if run.out and os.path.exists(run.out) and (not os.path.isdir(run.out) or os.listdir(run.out)):
        raise UserError(f'--out {str(run.out)!r} exists already. Give the name of a new folder.')
    cfg = read(run, str(run.checkpoint), run.split)
    if run.split == 'val':
        if cfg.get('val_dataloader') is None:
            raise UserError(f'--split val: {run.config} has no val_dataloader.')
        cfg.test_dataloader, cfg.test_evaluator = cfg.val_dataloader, cfg.val_evaluator
        cfg.test_cfg = dict(type='TestLoop')
    # EMAHook's averages are the weights that a checkpoint holds. An exported file has no others at all.
    cfg.custom_hooks = [hook for hook in cfg.get('custom_hooks') or [] if hook not in hooks_of(cfg, 'EMAHook')]
    cfg.load_from, cfg.resume = None, False
    if run.tta:
        if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
            raise UserError(f'--tta: {cfg.filename!r} lacks tta_model or tta_pipeline: set both, or leave --tta out.')
        for dataset in datasets_of(cfg, 'test'):
            dataset.pipeline = cfg.tta_pipeline
    return cfg


def hooks_of(cfg: Config, name: str) -> list[dict[str, Any]]:
    """Return the settings of those ``custom_hooks`` that are of MMEngine's or this package's class ``name``."""
    hooks = cfg.get('custom_hooks') or []
    if not hooks:
        return []
    from mmengine import hooks as theirs
    from mmengine.registry import HOOKS

    from .. import engine
    kinds = tuple(getattr(package, name) for package in (theirs, engine) if hasattr(package, name))
    return [hook for hook in hooks if issubclass(class_of(hook, cfg, HOOKS) or object, kinds)]
