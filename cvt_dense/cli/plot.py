"""Draws the losses, learning rate and metrics of runs, and prints a table of their last and best values.

    python tools/plot.py work_dirs/maskrcnn_cvt13_custom
    python tools/plot.py work_dirs/lr_1e-4 work_dirs/lr_2e-4 --out compared.png

All starts of a run that was resumed are one line. Several runs are drawn into the same picture.
"""
import argparse
from collections.abc import Sequence
from pathlib import Path

from ..curves import Curves, draw_curves, table
from . import command_line
from .outputs import add_force_argument, check_outputs


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('runs', nargs='+', metavar='RUN', help='folder of a run, the --work-dir of tools/train.py')
    parser.add_argument('--out', metavar='FILE', help='picture to write (default: curves.png in the folder of the run, '
                                                      'or here if there are several)')
    add_force_argument(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Draw the curves of the runs and print their table."""
    args = build_parser().parse_args(argv)
    with command_line.report_errors(OSError, ValueError):
        runs = {folder: Curves(folder) for folder in args.runs}
        out = Path(args.out or (Path(args.runs[0]) / 'curves.png' if len(runs) == 1 else 'curves.png'))
        check_outputs([out], args.force or args.out is None)
        draw_curves(runs, out)
        print(table(runs))
        print(f'picture: {out}')
