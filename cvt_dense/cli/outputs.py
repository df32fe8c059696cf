"""Check the files that tools write: no existing file is overwritten without ``--force``."""
import argparse
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError


def add_force_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``, the second argument of :func:`check_outputs`."""
    parser.add_argument('--force', action='store_true', help='overwrite output files that exist')


def check_outputs(paths: Iterable[str | Path], force: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Check that a tool may write its output files.

    Args:
        paths: the files that the tool is about to write.
        force: whether files that exist may be overwritten.
        inputs: the files that the tool reads, which may not be overwritten even with ``force``.

    Raises:
        UserError: an output file exists and ``force`` is false, is one of ``inputs``, or is a folder.
    """
    read = {Path(path).resolve() for path in inputs}
    for path in map(Path, paths):
        if path.resolve() in read:
            raise UserError(f'The output file {path} would overwrite an input of the same command. Give another name.')
        if path.is_dir():
            raise UserError(f'The output file {path} is a folder. Give the name of a file.')
        if not force and (path.exists() or path.is_symlink()):
            raise UserError(f'The output file {path} exists already. Give another name, or --force to overwrite it.')


def check_folder(folder: Path, force: bool | None = None, source: Path | None = None) -> None:
    """Check that a tool may write into a folder: there are no files in it, or ``force`` allows to overwrite them.

    ``force`` is None where the tool has no such flag.

    Raises:
        UserError: it may not, or the folder and ``source``, which the tool reads, lie in each other.
    """
    written, read = folder.resolve(), source and source.resolve()
    if read is not None and (written.is_relative_to(read) or read.is_relative_to(written)):
        raise UserError(f'{folder} and {source} lie in each other, and files would overwrite an input. Give another '
                        'folder.')
    if folder.exists() and (not folder.is_dir() or not force and any(folder.iterdir())):
        advice = ', or --force to overwrite its files' if force is False else ''
        raise UserError(f'The folder {folder} exists already. Give the name of a new one{advice}.')


def check_report_folder(args: argparse.Namespace) -> None:
    """Check that a tool may write its folder of a report, ``args.out_dir``.

    Raises:
        UserError: there is a file of that name, or a folder that is not empty, unless it is an older report, which
            ``args.force`` replaces.
    """
    check_folder(args.out_dir, args.force if (args.out_dir / 'report.json').is_file() else None)
