"""Start a training or a test in three steps: read, check, build. The tool then runs it."""
import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import UserError
from .command_line import check_exists
from .distributed import is_first_process, setup_distributed
from .paths import check_paths
from .read import read_config
from .work_dir import check_work_dir

if TYPE_CHECKING:
    from mmengine.config import Config
    from mmengine.runner import Runner


def start(args: argparse.Namespace, stages: list[str], change: 'Callable[[Config], None] | None' = None,
          summary: bool = True) -> 'Runner':
    """Return the Runner of a command line. The first process checks the config for all processes.

    Args:
        args: the tool's flags.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.
        change: see :func:`cvt_dense.launch.read.read_config`.
        summary: whether a summary of the run is printed.

    Raises:
        UserError, ...: see ``command_line.SETUP_ERRORS``; nothing has been written then.
    """
    user_cfg = read_config(args, change)
    checkpoint = getattr(args, 'checkpoint', None) or getattr(args, 'resume', None)
    if checkpoint not in (None, 'auto'):
        check_exists(checkpoint)
    if is_first_process():
        if 'train' in stages:
            check_work_dir(user_cfg, args)
        if not args.no_check:
            check_paths(user_cfg, stages)
    # Only now PyTorch and the packages of the data sets are imported, which takes seconds.
    from mmengine.logging import MMLogger

    from ..console import add_console_filter
    from .adapt import adapt
    from .announce import announce
    from .build import build_runner, check_model, load_datasets, raise_in_all_processes
    add_console_filter(MMLogger.get_current_instance(), logging.INFO)
    setup_distributed(args.launcher, args.local_rank)
    cfg = adapt(user_cfg, args)
    error, datasets, check = None, {}, not args.no_check and is_first_process()
    try:
        datasets = load_datasets(cfg, stages, check)
        if check:
            check_model(cfg, datasets)
    except UserError as caught:
        error = caught
    raise_in_all_processes(error)
    runner = build_runner(cfg, user_cfg, args, datasets)
    if summary:
        announce(runner, cfg, datasets)
    return runner
