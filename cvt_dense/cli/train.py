"""Trains what a config describes: classifier, detector or segmentor.

    python tools/train.py configs/cvt13_in1k.py --data-root /data/imagenet

The learning rate of classification recipes and of templates is scaled to the images of all processes. A user's
mistake ends with one line on stderr and exit code 2, before a checkpoint is written.
"""
import argparse
import sys
from collections.abc import Sequence

from ..launch.distributed import destroy_process_group_at_exit
from ..launch.runs import TrainRun
from ..launch.start import start_training
from .command_line import add_settings, report_errors, settings_of


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_settings(parser, TrainRun)
    return parser


@destroy_process_group_at_exit
def main(argv: Sequence[str] | None = None) -> None:
    """Train the network of the config that the command line names."""
    args = build_parser().parse_args(argv)
    with report_errors(ImportError):  # of a tracker's package, or one that the config names
        runner = start_training(settings_of(TrainRun, args))
        from ..engine.checkpoint import Stopped
        try:
            runner.train()
        except Stopped as stopped:
            sys.exit(stopped.code)
