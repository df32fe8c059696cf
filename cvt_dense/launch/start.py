"""The first seconds of a tool: what can be wrong is said before PyTorch and the mm packages are imported."""
import argparse
import sys
from typing import TYPE_CHECKING, Any

from mmengine.config import Config

from ..console import quiet_packages
from ..nodes import dicts, type_name
from . import settings
from .check_data.annotations import check_paths
from .check_data.data_sets import is_first_process
from .check_values import check_numbers
from .command_line import check_exists
from .work_dir import check_work_dir

if TYPE_CHECKING:
    from mmengine.runner import Runner

# What needs the package of the name; MMEngine and MMDetection import it for these alone, at once.
TRANSFORMERS_TYPES = {'ATSSVLFusionHead', 'Adafactor', 'BertModel', 'RandomSamplingNegPos'}


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
    leave_out_transformers(asked)
    from .build import build_runner
    return build_runner(asked, args, stages)


def leave_out_transformers(cfg: Config) -> None:
    """Makes MMEngine and MMDetection do without transformers, as where it is not installed, if ``cfg`` can.

    They import it, which takes longer than PyTorch, for one optimizer and for language models. Others that import it
    get it as always.
    """
    if not any(type_name(node) in TRANSFORMERS_TYPES for node in dicts(cfg.to_dict())):
        sys.meta_path.insert(0, _NoTransformers)


class _NoTransformers:

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name != 'transformers':
            return
        frame = sys._getframe(1)
        while frame.f_globals['__name__'].startswith('importlib.'):
            frame = frame.f_back
        if frame.f_globals['__name__'].partition('.')[0] in ('mmengine', 'mmdet'):
            raise ModuleNotFoundError('left out: this config names nothing that needs it', name=name)
