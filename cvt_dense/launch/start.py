"""Start a training or a test: read the config, check it, build the Runner. The tool then runs it."""
import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .checks.config import check_config
from .distributed import is_first_process, setup_distributed
from .flags import Change, TestFlags, TrainFlags, apply_test_flags, read, read_training
from .work_dir import check_work_dir, lock_work_dir, resume_from, test_folder

if TYPE_CHECKING:
    from mmengine.runner import Runner
# PyTorch and the packages of the data sets take seconds to import: only after mistakes that need none of them.


def start_training(flags: TrainFlags, change: Change | None = None, stages: Sequence[str] = ('train', 'val'),
                   summary: bool = True) -> 'Runner':
    """Return the Runner of a training.

    Args:
        flags: flags of the command line.
        change: changes the config, as reports do.
        stages: data loaders that the run uses, of 'train', 'val' and 'test'.
        summary: whether a summary of the run is logged.

    Raises:
        UserError: a mistake in flags, config, data or weights; no checkpoint has been written then.
    """
    user_cfg, first = read_training(flags, change), is_first_process()
    if first:
        check_work_dir(user_cfg, flags)
    if first and not flags.no_check:
        check_config(user_cfg, stages)
    setup_distributed(flags.launcher)
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    if first:
        lock_work_dir(cfg, flags)
    resume_from(cfg, flags.resume)
    adapt_to_machine(cfg, flags.launcher)
    return build(cfg, user_cfg, flags, stages, summary)


def start_test(flags: TestFlags, change: Change | None = None) -> 'Runner':
    """Return the Runner of a test; see :func:`start_training`."""
    user_cfg = read(flags, flags.checkpoint, change)
    if is_first_process() and not flags.no_check:
        check_config(user_cfg, ['test'])
    setup_distributed(flags.launcher)
    from .build import build
    from .machine import adapt_to_machine
    cfg = copy.deepcopy(user_cfg)
    cfg.work_dir = test_folder(cfg, flags)
    apply_test_flags(cfg, flags)
    adapt_to_machine(cfg, flags.launcher)
    return build(cfg, user_cfg, flags, ['test'])
