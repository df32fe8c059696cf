"""The first seconds of a tool: what can be wrong is said before PyTorch and the mm packages are imported."""
import argparse
from typing import TYPE_CHECKING

from ..console import quiet_packages
from . import settings
from .check_data.annotations import check_paths
from .check_data.data_sets import is_first_process
from .check_values import check_numbers
from .command_line import check_exists
from .work_dir import check_work_dir

if TYPE_CHECKING:
    from mmengine.runner import Runner


def start(args: argparse.Namespace, stages: list[str]) -> 'Runner':
    """Reads the config of a command line, checks it, and builds its Runner.

    Args:
        args: the tool's flags.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError, ValueError, ...: see ``command_line.SETUP_ERRORS``; nothing has been written then.
    """
    with quiet_packages():
        asked = settings.load_config(args)
        checkpoint = getattr(args, 'checkpoint', None) or getattr(args, 'resume', None)
        if checkpoint not in (None, 'auto'):
            check_exists(checkpoint)
        check_numbers(asked, stages)
        if 'train' in stages and is_first_process():
            check_work_dir(asked, args)
        if not args.no_check and is_first_process():
            for stage in stages:
                if asked.get(f'{stage}_dataloader'):
                    check_paths(asked, stage)
    from .build import build_runner
    return build_runner(asked, args, stages)
