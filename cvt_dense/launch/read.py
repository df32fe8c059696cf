"""Read a config and apply the flags that belong to what the user asked for.

The result of a training is written into its work dir and its checkpoints, and a training from it is the same training.
:mod:`.machine` applies changes for this machine to a copy.
"""
import os
from collections.abc import Callable

from mmengine.config import Config

from ..config.amp import use_amp
from ..config.class_folders import set_classes
from ..config.read import check_exists, read_config
from ..errors import UserError
from ..nodes import type_name
from .flags import Flags, TestFlags, TrainFlags

VIS_BACKENDS = dict(  # by the name of their package
    aim='AimVisBackend', clearml='ClearMLVisBackend', dvclive='DVCLiveVisBackend', mlflow='MLflowVisBackend',
    neptune='NeptuneVisBackend', tensorboard='TensorboardVisBackend', wandb='WandbVisBackend')


def read_training(flags: TrainFlags, change: Callable[[Config], None] | None = None) -> Config:
    """Return the config of a training.

    Args:
        flags: flags of the command line.
        change: changes the config before the class folders are counted, as reports do.

    Raises:
        UserError: a file does not exist, or an option or a flag has no effect or no allowed value.
    """
    cfg = _read(flags, change)
    if flags.resume not in (None, 'auto'):
        check_exists(flags.resume)
    set_classes(cfg)
    if flags.amp:
        use_amp(cfg, flags.amp)
    if flags.auto_scale_lr:
        cfg.auto_scale_lr = dict(cfg.get('auto_scale_lr') or {}, enable=True)
    if flags.val_loss:
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='cvt_dense.ValLossHook')]
    if flags.vis_backend:
        add_vis_backend(cfg, flags.vis_backend)
    return cfg


def read_test(flags: TestFlags, change: Callable[[Config], None] | None = None) -> Config:
    """Return the config of a test; see :func:`read_training`."""
    cfg = _read(flags, change)
    set_classes(cfg, flags.checkpoint, flags.runtime)
    if flags.out:
        save_predictions(cfg, flags.out)
    return cfg


def _read(flags: Flags, change: Callable[[Config], None] | None) -> Config:
    cfg = read_config(flags.config, flags.cfg_options, flags.data_root)
    cfg.work_dir = flags.work_dir or cfg.get('work_dir') or os.path.join(
        'work_dirs', os.path.splitext(os.path.basename(flags.config))[0])
    if change is not None:
        change(cfg)
    return cfg


def add_vis_backend(cfg: Config, name: str) -> None:
    """Send the training curves to one of :data:`VIS_BACKENDS` too; MMEngine reports a package that is missing."""
    cfg.visualizer = cfg.get('visualizer') or dict(type='Visualizer')
    backends = cfg.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
    if VIS_BACKENDS[name] not in map(type_name, backends):
        cfg.visualizer.vis_backends = [*backends, dict(type=VIS_BACKENDS[name])]


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
