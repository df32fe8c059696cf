"""Start a training or a test: read the config, check it, build the Runner. The tool then runs it."""
import copy
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import UserError
from .distributed import is_first_process, setup_distributed
from .flags import Flags, TestFlags, TrainFlags
from .paths import check_paths
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
    if is_first_process():
        check_work_dir(user_cfg, flags)
    _prepare(user_cfg, flags, stages)
    from ..config.amp import check_amp
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    resume_from(cfg, flags.resume)
    if flags.amp:
        check_amp(cfg, flags.amp)
    adapt_to_machine(cfg, flags.launcher)
    return build(cfg, user_cfg, stages, not flags.no_check, lambda: lock_work_dir(cfg, flags), summary)


def start_test(flags: TestFlags, change: 'Callable[[Config], None] | None' = None) -> 'Runner':
    """Return the Runner of a test; see :func:`start_training`."""
    user_cfg = read_test(flags, change)
    _prepare(user_cfg, flags, ['test'])
    from ..deploy.runtime import is_exported
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    cfg.load_from, cfg.resume = flags.checkpoint, False
    check_test_flags(flags, is_exported(flags.checkpoint))
    cfg.work_dir = test_folder(cfg, flags)
    if is_exported(flags.checkpoint):
        from ..deploy.exported import use_exported_model
        use_exported_model(cfg, flags.checkpoint, flags.runtime)
    if flags.autocast:
        from ..config.amp import use_autocast
        use_autocast(cfg, flags.autocast)
    if flags.fuse:
        cfg.custom_hooks = [*(cfg.get('custom_hooks') or []), dict(type='cvt_dense.FuseHook')]
    if flags.tta:
        from .tta import use_tta
        use_tta(cfg)
    if flags.slice is not None:
        from ..inference.slices import use_slices
        use_slices(cfg, flags.slice, flags.overlap)
    if flags.corrupt:
        from ..datasets.corruption import use_corruptions
        use_corruptions(cfg, flags.corrupt, flags.severity)
    adapt_to_machine(cfg, flags.launcher)
    if flags.tta or flags.slice is not None:  # last, because all before are settings of the model inside
        cfg.model = dict(**cfg.tta_model, module=cfg.model)
    return build(cfg, user_cfg, ['test'], not flags.no_check)


def _prepare(cfg: 'Config', flags: Flags, stages: Sequence[str]) -> None:
    """Check the config's paths in the first process, limit what the console shows, and set up the processes."""
    if is_first_process() and not flags.no_check:
        check_paths(cfg, stages)
    from mmengine.logging import MMLogger

    from ..console import add_console_filter
    add_console_filter(MMLogger.get_current_instance(), logging.INFO)
    setup_distributed(flags.launcher, flags.local_rank)


def check_test_flags(flags: TestFlags, whole: bool) -> None:
    """Raise ``UserError`` for flags that do not go together; ``whole``: the checkpoint is an exported model."""
    if flags.tta and flags.slice is not None:
        raise UserError('--slice with --tta: both decide what the network sees of an image; leave one of them out.')
    if flags.out and flags.corrupt:
        raise UserError('--out with --corrupt: the predictions of each corruption would replace those before; leave '
                        'one of them out.')
    if whole and flags.fuse:
        raise UserError(f'--fuse: {flags.checkpoint} was fused when it was exported; leave the flag out.')
    if whole and flags.autocast:
        raise UserError(f'--amp {flags.autocast}: {flags.checkpoint} has the precision that it was exported with; '
                        f'export it with --precision {flags.autocast} instead.')
