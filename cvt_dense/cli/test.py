"""Evaluates a checkpoint, or a file of tools/export.py, with the test data set and metrics of a config.

    python tools/test.py configs/cvt13_in1k.py work_dirs/cvt13_in1k/epoch_300.pth --data-root /data/imagenet
    python tools/test.py configs/cvt13_in1k.py cvt13.onnx --data-root /data/imagenet

Averaged weights are evaluated, and with ``cvt_dense.RawWeightsHook`` in the config also the others, as ``raw/...``.
"""
import argparse
from collections.abc import Sequence

from ..launch.distributed import destroy_process_group_at_exit
from ..launch.runs import TestRun
from ..launch.start import start_test
from .command_line import add_settings, expand_published, report_errors, settings_of


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        description='Evaluates a checkpoint with the test data set of a config. A published model takes the place of '
                    'config and checkpoint.')
    add_settings(parser, TestRun)
    return parser


@destroy_process_group_at_exit
def main(argv: Sequence[str] | None = None) -> None:
    """Test the checkpoint that the command line names."""
    args = build_parser().parse_args(expand_published(argv))
    with report_errors():
        start_test(settings_of(TestRun, args)).test()
