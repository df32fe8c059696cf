"""The flags of a training and of a test, and what each of them sets in a config."""
import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

from mmengine.config import Config

from ..config import settings
from ..config.read import check_exists, read_config
from ..errors import UserError

# The packages of PyTorch are imported where they are needed: a wrong flag is an error before that.
Change = Callable[[Config], None]


@dataclass(kw_only=True)
class Flags:
    """Flags that training and testing have in common.

    Args:
        config: config file.
        cfg_options: settings to override, by their dotted names.
        work_dir: folder of logs and checkpoints. Default: the config's, or ``work_dirs/<config name>``.
        data_root: folder that takes the place of the config's data root.
        no_check: whether the checks are left out.
        launcher: what started the processes of a distributed run: 'none', 'pytorch' (torchrun) or 'slurm'.
    """

    config: str
    cfg_options: dict[str, Any] | None = None
    work_dir: str | None = None
    data_root: str | None = None
    no_check: bool = False
    launcher: str = 'none'

    @classmethod
    def of(cls, args: argparse.Namespace, **changes: Any) -> Self:
        """Return the flags of a parsed command line, with ``changes``."""
        known = {field.name: vars(args)[field.name] for field in fields(cls) if field.name in vars(args)}
        return cls(**dict(known, **changes))


@dataclass(kw_only=True)
class TrainFlags(Flags):
    """Flags of ``tools/train.py``.

    Args:
        resume: checkpoint that the run continues from; 'auto': the last complete one in the work dir.
        overwrite: whether another run in the work dir is moved aside.
        amp: mixed precision: 'fp16', 'bf16', or 'default' for the one that suits the model.
        auto_scale_lr: whether the learning rate is scaled to the total batch.
        val_loss: whether evaluations compute the validation loss too.
        vis_backend: type of MMEngine's that gets the curves too, such as 'MLflowVisBackend'.
    """

    resume: str | None = None
    overwrite: bool = False
    amp: str | None = None
    auto_scale_lr: bool = False
    val_loss: bool = False
    vis_backend: str | None = None


@dataclass(kw_only=True)
class TestFlags(Flags):
    """Flags of ``tools/test.py``.

    Args:
        checkpoint: checkpoint file or URL, or a whole exported model.
        runtime: runtime of exported files.
        amp: mixed precision, 'bf16' or 'fp16'.
        fuse: whether BatchNorm is folded into the layers beside it.
        tta: whether the config's test-time augmentation is used.
        slice: side in pixels of the slices that larger images are cut into.
        overlap: fraction of their side by which neighbouring slices overlap.
        out: folder for the predictions.
    """

    checkpoint: str
    runtime: str | None = None
    amp: str | None = None
    fuse: bool = False
    tta: bool = False
    slice: int | None = None
    overlap: float = 0.2
    out: str | None = None

    __test__ = False  # pytest takes a class of this name for one of tests


def read(flags: Flags, checkpoint: str | None, change: Change | None = None) -> Config:
    """Return the config that flags name, with the flags that training and testing have in common.

    Args:
        flags: flags of the command line.
        checkpoint: the one of them that names a checkpoint, which must exist.
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


def read_training(flags: TrainFlags, change: Change | None = None) -> Config:
    """Return the config of a training, as its work dir and its checkpoints have it.

    A training from that config is the same training. Arguments and errors as those of :func:`read`.
    """
    cfg = read(flags, flags.resume, change)
    if flags.amp:
        settings.use_amp(cfg, flags.amp)
    if flags.auto_scale_lr:
        cfg.auto_scale_lr = dict(cfg.get('auto_scale_lr') or {}, enable=True)
    if flags.val_loss:
        add_hook(cfg, type='cvt_dense.ValLossHook')
    if flags.vis_backend:
        cfg.visualizer = cfg.get('visualizer') or dict(type='Visualizer')
        backends = cfg.visualizer.get('vis_backends') or [dict(type='LocalVisBackend')]
        if flags.vis_backend not in map(settings.type_name, backends):  # as in the dumped config of a run with the flag
            cfg.visualizer.vis_backends = [*backends, dict(type=flags.vis_backend)]
    return cfg


def apply_test_flags(cfg: Config, flags: TestFlags) -> None:
    """Set in a config what the flags of a test ask for.

    Args:
        cfg: changed in place.
        flags: flags of the command line.

    Raises:
        UserError: flags do not go together, or are not for this config.
    """
    from mmengine.registry import MODELS

    from ..deploy.runtime import is_exported, open_exported
    from ..inference.model import set_classes
    from ..models.task import task_of
    from ..weights import load_weights_file
    whole = is_exported(flags.checkpoint)
    check_test_flags(flags, whole)
    cfg.load_from, cfg.resume = flags.checkpoint, False
    if task_of(settings.class_of(cfg.model, cfg, MODELS)) == 'classification':
        set_classes(cfg, open_exported(flags.checkpoint, flags.runtime).metadata if whole else
                    load_weights_file(flags.checkpoint))
    if flags.out:
        save_predictions(cfg, flags.out)
    if whole:
        from ..deploy.exported import use_exported_model
        use_exported_model(cfg, flags.checkpoint, flags.runtime)
    if flags.amp:
        settings.use_autocast(cfg, flags.amp)
    if flags.fuse:
        add_hook(cfg, type='cvt_dense.FuseHook')
    if flags.tta:
        use_tta(cfg)
    if flags.slice is not None:
        from ..inference.slices import use_slices
        use_slices(cfg, flags.slice, flags.overlap)
    if flags.tta or flags.slice is not None:  # last, because all before are settings of the model inside
        cfg.model = dict(**cfg.tta_model, module=cfg.model)


def check_test_flags(flags: TestFlags, whole: bool) -> None:
    """Raise ``UserError`` for flags that do not go together; ``whole``: the checkpoint is an exported model."""
    if flags.tta and flags.slice is not None:
        raise UserError('--slice with --tta: both decide what the network sees of an image; leave one of them out.')
    if whole and flags.fuse:
        raise UserError(f'--fuse: {flags.checkpoint} was fused when it was exported; leave the flag out.')
    if whole and flags.amp:
        raise UserError(f'--amp {flags.amp}: {flags.checkpoint} has the precision that it was exported with; export it '
                        f'with --precision {flags.amp} instead.')


def add_hook(cfg: Config, **hook: Any) -> None:
    """Add a hook to ``custom_hooks``."""
    cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), hook]


def save_predictions(cfg: Config, folder: str) -> None:
    """Let the test metrics save predictions in ``folder``: COCO JSON (detection), label maps (segmentation).

    Raises:
        UserError: the config has no metric that can.
    """
    evaluators = cfg.test_evaluator if isinstance(cfg.test_evaluator, list) else [cfg.test_evaluator]
    types = [settings.type_name(evaluator) for evaluator in evaluators]
    for evaluator, name in zip(evaluators, types):
        if name in settings.COCO_METRICS:
            evaluator['outfile_prefix'] = os.path.join(folder, 'predictions')
        elif name == 'IoUMetric':  # whose own files have no folders
            add_hook(cfg, type='cvt_dense.SaveLabelMapsHook', folder=folder)
    if not {*settings.COCO_METRICS, 'IoUMetric'} & set(types):
        raise UserError(f'--out {folder!r}: none of the metrics {types} can save predictions; CocoMetric and IoUMetric '
                        'can.')


def use_tta(cfg: Config) -> None:
    """Let the test data set load every view of the config's ``tta_pipeline``.

    Raises:
        UserError: the config has no test-time augmentation, or none that is right for its head.
    """
    if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
        raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline.')
    if any(node.get('out_channels') == 1 for node in settings.dicts(cfg.model.get('decode_head'))):
        raise UserError('--tta: MMSegmentation would apply the sigmoid of decode_head.out_channels=1 twice. Test '
                        'without --tta, or train two classes with softmax (without out_channels).')
    for dataset in settings.datasets_of(cfg, 'test'):
        dataset['pipeline'] = cfg.tta_pipeline
