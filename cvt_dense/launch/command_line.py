"""The flags that the tools have in common, and how errors are reported."""
import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.config import DictAction
from tqdm import tqdm

from ..errors import UserError

# What wrong settings and files raise while datasets, model and runner are built.
SETUP_ERRORS = (UserError, ValueError, TypeError, KeyError, AttributeError, AssertionError, ImportError,
                OSError, SyntaxError, RuntimeError)


@contextmanager
def report_errors(*errors: type) -> Iterator[None]:
    """Ends the process with the message of any of ``errors`` on stderr and exit code 2; no traceback."""
    try:
        yield
    except errors as error:
        message = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
        if not isinstance(error, (UserError, ValueError, OSError)):
            message = f'{type(error).__name__}: {message}'
        sys.stdout.flush()
        tqdm.write('error: ' + ' '.join(message.split()), file=sys.stderr)  # above a progress bar, if there is one
        sys.exit(2)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that training and testing have in common."""
    parser.add_argument('--work-dir', help='folder of logs and checkpoints (default: work_dirs/<config '
                                           'name>)')
    parser.add_argument('--data-root', metavar='DIR', help="read every data set and evaluator's files from "
                                                           "DIR instead of the config's data_root")
    parser.add_argument('--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
                        help='override settings, e.g. train_dataloader.batch_size=32 model.num_classes=50')
    parser.add_argument('--no-check', action='store_true',
                        help='start without checking the data sets (what the checks find is named in the README)')
    parser.add_argument('--launcher', choices=('none', 'pytorch', 'slurm'), default='none',
                        help='what started the processes of a distributed run (tools/dist_*.sh pass pytorch)')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0, help=argparse.SUPPRESS)
