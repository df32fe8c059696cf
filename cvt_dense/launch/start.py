"""Start a training or a test: read the config, check it, build the Runner. The tool then runs it."""
import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..annotations.data_sets import use_annotations
from ..config.data_sets import leaf_datasets
from ..config.nodes import dicts
from ..errors import UserError
from .checks.config import check_config
from .distributed import is_first_process, setup_distributed
from .flags import TestFlags, TrainFlags
from .read import read_test, read_training
from .work_dir import check_work_dir, lock_work_dir, resume_from, test_folder

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.runner import Runner
# PyTorch and the packages of the data sets take seconds to import: only after mistakes that need none of them.


def start_training(flags: TrainFlags, change: 'Callable[[Config], None] | None' = None,
                   stages: Sequence[str] = ('train', 'val'), summary: bool = True) -> 'Runner':
    """Return the Runner of a training.

    Args:
        flags: flags of the command line.
        change: see :func:`.read.read_training`.
        stages: data loaders that the run uses, of 'train', 'val' and 'test'.
        summary: whether a summary of the run is logged.

    Raises:
        UserError: a mistake in flags, config, data or weights; no checkpoint has been written then.
    """
    user_cfg = read_training(flags, change)
    first = is_first_process()
    if first:
        check_work_dir(user_cfg, flags)
    found = check_config(user_cfg, stages) if first and not flags.no_check else None
    setup_distributed(flags.launcher)
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    if first:
        lock_work_dir(cfg, flags)
    if not flags.no_check:
        use_annotations(cfg, stages, found, cfg.work_dir)
    resume_from(cfg, flags.resume)
    adapt_to_machine(cfg, flags.launcher)
    return build(cfg, user_cfg, stages, not flags.no_check, summary)


def start_test(flags: TestFlags, change: 'Callable[[Config], None] | None' = None) -> 'Runner':
    """Return the Runner of a test; see :func:`start_training`."""
    user_cfg = read_test(flags, change)
    found = check_config(user_cfg, ['test']) if is_first_process() and not flags.no_check else None
    setup_distributed(flags.launcher)
    from ..deploy.runtime import is_exported
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    cfg.load_from, cfg.resume = flags.checkpoint, False
    check_test_flags(flags, is_exported(flags.checkpoint))
    cfg.work_dir = test_folder(cfg, flags)
    if not flags.no_check:
        use_annotations(cfg, ['test'], found, cfg.work_dir)
    if is_exported(flags.checkpoint):
        from ..deploy.exported import use_exported_model
        use_exported_model(cfg, flags.checkpoint, flags.runtime)
    if flags.autocast:
        from ..config.amp import use_autocast
        use_autocast(cfg, flags.autocast)
    if flags.fuse:
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='cvt_dense.FuseHook')]
    if flags.tta:
        use_tta(cfg)
    if flags.slice is not None:
        from ..inference.slices import use_slices
        use_slices(cfg, flags.slice, flags.overlap)
    adapt_to_machine(cfg, flags.launcher)
    if flags.tta or flags.slice is not None:  # last, because all before are settings of the model inside
        cfg.model = dict(**cfg.tta_model, module=cfg.model)
    return build(cfg, user_cfg, ['test'], not flags.no_check)


def use_tta(cfg: 'Config') -> None:
    """Let the test data set load every view of the config's ``tta_pipeline``.

    Raises:
        UserError: the config has no test-time augmentation, or none that is right for its head.
    """
    if not cfg.get('tta_model') or not cfg.get('tta_pipeline'):
        raise UserError(f'--tta: {cfg.filename!r} sets no tta_model and tta_pipeline.')
    if any(node.get('out_channels') == 1 for node in dicts(cfg.model.get('decode_head'))):
        raise UserError('--tta: MMSegmentation would apply the sigmoid of decode_head.out_channels=1 twice. Test '
                        'without --tta, or train two classes with softmax (without out_channels).')
    for dataset in leaf_datasets(cfg.test_dataloader.dataset):
        dataset['pipeline'] = cfg.tta_pipeline


def check_test_flags(flags: TestFlags, whole: bool) -> None:
    """Raise ``UserError`` for flags that do not go together; ``whole``: the checkpoint is an exported model."""
    if flags.tta and flags.slice is not None:
        raise UserError('--slice with --tta: both decide what the network sees of an image; leave one of them out.')
    if whole and flags.fuse:
        raise UserError(f'--fuse: {flags.checkpoint} was fused when it was exported; leave the flag out.')
    if whole and flags.autocast:
        raise UserError(f'--amp {flags.autocast}: {flags.checkpoint} has the precision that it was exported with; '
                        f'export it with --precision {flags.autocast} instead.')
