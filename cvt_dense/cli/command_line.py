"""The flags that the tools have in common, and how errors are reported."""
import argparse
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Literal, get_args, get_origin

from ..errors import UserError
from ..launch.runs import Run
from ..published import fetch, is_published
from .options import OptionsAction


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
        if int(os.environ.get('TORCHELASTIC_MAX_RESTARTS', 0)):
            os.kill(os.getppid(), signal.SIGTERM)  # torchrun, which would start again what refuses to start
        sys.exit(2)


def show_traceback() -> None:
    """Print the traceback of the exception that is handled, if ``CVT_DENSE_TRACEBACK`` asks for it."""
    if os.environ.get('CVT_DENSE_TRACEBACK', '0') not in ('', '0'):
        traceback.print_exc()


def parse_size(text: str) -> tuple[int, int]:
    """Parse '800x1280' as (800, 1280), height first, and '224' as (224, 224)."""
    height, _, width = text.partition('x')
    if not height.isdecimal() or not (width or height).isdecimal() or min(int(height), int(width or height)) < 16:
        raise argparse.ArgumentTypeError(f'{text!r}: allowed is HEIGHTxWIDTH, such as 800x1280, of at least 16 pixels')
    return int(height), int(width or height)


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


def add_settings(parser: argparse.ArgumentParser, run: type[Run], *names: str) -> None:
    """Add a flag for each setting of a run, and an argument for each without a default.

    The type of the field makes the flag: a bool one without a value (``--no-NAME`` if it is true by default), a dict
    ``KEY=VALUE`` pairs, a ``Literal`` choices, an int or float a number, and any other type a text.

    Args:
        parser: gets the flags.
        run: ``TrainRun`` or ``TestRun``.
        names: those that are wanted. Default: all.
    """
    for each in fields(run):
        if names and each.name not in names:
            continue
        flag, kinds = dict(each.metadata), get_args(each.type) or (each.type, )
        choices = [choice for kind in (each.type, *kinds) if get_origin(kind) is Literal for choice in get_args(kind)]
        name = f'--{flag.pop("name", each.name.replace("_", "-"))}'
        if each.default is MISSING and each.default_factory is MISSING:
            parser.add_argument(each.name, **flag)
        elif each.type is bool:
            parser.add_argument(name if not each.default else f'--no-{name[2:]}', dest=each.name, default=each.default,
                                action='store_false' if each.default else 'store_true', **flag)
        elif dict in map(get_origin, (each.type, *kinds)):
            parser.add_argument(name, dest=each.name, nargs='+', action=OptionsAction, default={}, metavar='KEY=VALUE',
                                **flag)
        else:
            kind = next((kind for kind in (int, float) if kind in kinds), str)
            parser.add_argument(name, type=kind, default=each.default, choices=choices or None, **flag)


def settings_of(run: type[Run], args: argparse.Namespace) -> Run:
    """Return the settings of a run that a command line has given."""
    return run(**{each.name: getattr(args, each.name) for each in fields(run) if hasattr(args, each.name)})
