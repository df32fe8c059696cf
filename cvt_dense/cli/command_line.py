"""The flags that the tools have in common, and how errors are reported."""
import argparse
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..config.options import OptionsAction
from ..config.read import fetch, is_published
from ..errors import UserError


@contextmanager
def report_errors(*errors: type[Exception]) -> Iterator[None]:
    """End the process with the message of a ``UserError``, or of one of ``errors``, on stderr, and exit code 2.

    Other exceptions are mistakes of the code and keep their traceback. ``CVT_DENSE_TRACEBACK=1`` in the environment
    prints the traceback of these errors too.
    """
    try:
        yield
    except (UserError, *errors) as error:
        show_traceback()
        sys.stdout.flush()
        from tqdm import tqdm
        tqdm.write('error: ' + ' '.join(str(error).split()), file=sys.stderr)  # above a progress bar, if there is one
        sys.exit(2)


def show_traceback() -> None:
    """Print the traceback of the exception that is handled, if ``CVT_DENSE_TRACEBACK`` asks for it."""
    if os.environ.get('CVT_DENSE_TRACEBACK', '0') not in ('', '0'):
        traceback.print_exc()


def expand_published(argv: Sequence[str] | None) -> list[str]:
    """Return a command line in which a published model, its first argument, stands for config and checkpoint.

    A model on the Hugging Face hub is downloaded; :func:`report_errors` ends the process if this fails.

    Args:
        argv: arguments. Default: those of this process.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv and is_published(argv[0]):
        with report_errors():
            argv[:1] = [str(fetch(argv[0]))] * 2
    return argv


def add_config_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every tool that takes a config."""
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE',
                        help='override settings, e.g. train_dataloader.batch_size=32 model.num_classes=50')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that training, testing and their reports have in common, except ``--work-dir``."""
    parser.add_argument('--data-root', metavar='DIR', help='folder that replaces the data_root of all data '
                        'sets and evaluators (or the common parent of several)')
    add_config_arguments(parser)
    parser.add_argument('--no-check', action='store_true',
                        help='skip the checks of settings, data and weights, except those that the run needs')


def add_work_dir_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--work-dir``, of the tools that write a log."""
    parser.add_argument('--work-dir', help='folder of the run; a test writes into its folder test/ (default: the '
                                           "folder of the tested checkpoint, the config's work_dir, or "
                                           'work_dirs/CONFIG)')


def add_launcher_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--launcher``, of the tools that run in several processes."""
    parser.add_argument('--launcher', choices=('none', 'pytorch', 'slurm'), default='none',
                        help='what started the processes of a distributed run (tools/dist_*.sh pass pytorch)')


def add_inference_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that testing and predicting have in common."""
    parser.add_argument('--runtime', choices=('onnxruntime', 'openvino', 'torch'),
                        help='what runs exported files (default: by suffix; an .onnx file runs in OpenVINO too)')
    parser.add_argument('--amp', choices=('bf16', 'fp16'),
                        help="PyTorch's mixed precision (on a CPU: bf16 only)")


def add_slice_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--slice`` and ``--overlap``."""
    parser.add_argument('--slice', type=int, metavar='PIXELS', help='cut larger images into overlapping slices of '
                        'this side, predict each slice as an image of its own, and merge the predictions')
    parser.add_argument('--overlap', type=float, default=0.2, metavar='FRACTION',
                        help='fraction of the side by which neighbouring slices overlap (default: %(default)s)')
