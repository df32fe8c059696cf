"""Start a training or a test: read the config, check it, build the Runner. The tool then runs it."""
import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .checks.config import check_config
from .distributed import is_first_process, setup_distributed
from .flags import Change, read_test, read_training
from .outputs import check_folder
from .work_dir import check_work_dir, lock_work_dir, resumed_checkpoint, test_folder

if TYPE_CHECKING:
    from mmengine.runner import Runner
# PyTorch and the packages of the data sets take seconds to import: only after mistakes that need none of them.


def start_training(flags: argparse.Namespace, change: Change | None = None, summary: bool = True) -> 'Runner':
    """Return the Runner of a training.

    Args:
        flags: what ``cvt_dense.cli.train.build_parser()`` parses.
        change: changes the config, as reports do.
        summary: whether a summary of the run is logged.

    Raises:
        UserError: a mistake in flags, config, data or weights; no checkpoint has been written then.
    """
    cfg, first = read_training(flags, change), is_first_process(flags.launcher)
    resume = flags.resume or (cfg.get('resume') and (cfg.get('load_from') or 'auto')) or None
    flags = argparse.Namespace(**vars(flags) | dict(resume=resume))  # a config's resume=True is --resume
    if first:
        check_work_dir(cfg, flags)
        if not flags.no_check:
            check_config(cfg, ['train', 'val'])
    setup_distributed(flags.launcher)  # modules imported with a process group would keep it, and its threads
    if first:
        lock_work_dir(cfg, flags)
    checkpoint = resumed_checkpoint(cfg, flags.resume)
    from .build import build
    return build(cfg, flags, ['train', 'val'], checkpoint, summary=summary)


def start_test(flags: argparse.Namespace, change: Change | None = None) -> 'Runner':
    """Return the Runner of a test; ``flags`` are those of ``cvt_dense.cli.test``. See :func:`start_training`."""
    cfg = read_test(flags, change)
    if is_first_process(flags.launcher):
        if flags.out:
            check_folder(Path(flags.out))
        if not flags.no_check:
            check_config(cfg, ['test'])
    setup_distributed(flags.launcher)
    cfg.work_dir = test_folder(cfg, flags)
    from ..inference.model import is_exported, prepare_model
    if flags.fuse and is_exported(flags.checkpoint):
        raise UserError(f'--fuse: {flags.checkpoint} was fused when it was exported; leave the flag out.')
    content = prepare_model(cfg, flags.checkpoint, flags.runtime, flags.amp)
    if flags.tta or flags.slice is not None:  # last, because the settings above are those of the model inside
        cfg.model = dict(**cfg.tta_model, module=cfg.model)
    from .build import build
    return build(cfg, flags, ['test'], content=content)
