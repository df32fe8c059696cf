"""Evaluates a checkpoint, or a file of tools/export.py, with the test data set and metrics of a config.

    python tools/test.py configs/cvt13_in1k.py work_dirs/cvt13_in1k/epoch_300.pth --data-root /data/imagenet
    python tools/test.py configs/cvt13_in1k.py cvt13.onnx --data-root /data/imagenet

Averaged weights are evaluated, and with ``cvt_dense.RawWeightsHook`` in the config also the others, as ``raw/...``.
"""
import argparse
from collections.abc import Sequence

from ..launch import command_line
from ..launch.distributed import destroy_process_group_at_exit
from ..launch.start import start_test


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description='Evaluates a checkpoint with the test data set of a config.')
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file, or whole model of tools/export.py (.onnx, .xml, .pt2)')
    command_line.add_work_dir_argument(parser)
    command_line.add_arguments(parser)
    command_line.add_launcher_argument(parser)
    command_line.add_inference_arguments(parser)
    parser.add_argument('--tta', action='store_true',
                        help="test-time augmentation: the config's tta_model and tta_pipeline")
    command_line.add_slice_arguments(parser)
    parser.add_argument('--fuse', action='store_true',
                        help="fold BatchNorm and the activation's factor into the layers beside them: same result up "
                             'to rounding')
    parser.add_argument('--out', metavar='DIR', help='save predictions in a new folder: detections as COCO JSON '
                        '(predictions.bbox.json, predictions.segm.json), segmentations as PNG label maps')
    return parser


@destroy_process_group_at_exit
def main(argv: Sequence[str] | None = None) -> None:
    """Test the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors():
        start_test(args).test()
