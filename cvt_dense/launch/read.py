"""Read a config and apply the flags that belong to what the user asked for.

The result of a training is written into its work dir and its checkpoints, and a training from it is the same training.
:mod:`.machine` applies changes for this machine to a copy.
"""
import os
from collections.abc import Callable

from mmengine.config import Config

from ..config.amp import use_amp
from ..config.data_sets import count_class_folders, is_classifier, set_classes
from ..config.nodes import type_name
from ..config.read import check_exists, read_config
from ..errors import UserError
from .flags import Flags, TestFlags, TrainFlags


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
    count_class_folders(cfg)
    if flags.amp:
        use_amp(cfg, flags.amp)
    if flags.auto_scale_lr:
        cfg.auto_scale_lr = dict(cfg.get('auto_scale_lr') or {}, enable=True)
    if flags.val_loss:
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='cvt_dense.ValLossHook')]
    if flags.vis_backend:
        cfg.visualizer = cfg.get('visualizer') or dict(type='Visualizer')
        backends = cfg.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
        if flags.vis_backend not in map(type_name, backends):  # as in the dumped config of a run with the flag
            cfg.visualizer.vis_backends = [*backends, dict(type=flags.vis_backend)]
    return cfg


def read_test(flags: TestFlags, change: Callable[[Config], None] | None = None) -> Config:
    """Return the config of a test; see :func:`read_training`."""
    cfg = _read(flags, change)
    check_exists(flags.checkpoint)
    if is_classifier(cfg):
        from ..deploy.runtime import is_exported, open_exported  # imports PyTorch
        from ..weights import load_weights_file
        set_classes(cfg, open_exported(flags.checkpoint, flags.runtime).metadata if is_exported(flags.checkpoint) else
                    load_weights_file(flags.checkpoint))
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


def save_predictions(cfg: Config, folder: str) -> None:
    """Let the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: the config has no metric that can.
    """
    coco = dict(outfile_prefix=os.path.join(folder, 'predictions'))
    options = dict(CocoMetric=coco, FasterCocoMetric=coco, IoUMetric={})
    evaluators = cfg.test_evaluator if isinstance(cfg.test_evaluator, list) else [cfg.test_evaluator]
    if not {type_name(evaluator) for evaluator in evaluators} & set(options):
        raise UserError(f'--out {folder!r}: none of the metrics {list(map(type_name, evaluators))} can save '
                        f'predictions; {list(options)} can.')
    for evaluator in evaluators:
        evaluator.update(options.get(type_name(evaluator), {}))
        if type_name(evaluator) == 'IoUMetric':  # whose own files have no folders
            cfg.custom_hooks = [
                *(cfg.get('custom_hooks') or []), dict(type='cvt_dense.SaveLabelMapsHook', folder=folder)]
