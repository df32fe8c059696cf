"""Exports a trained network as an ONNX, OpenVINO or PyTorch file, and checks that file.

    python tools/export.py configs/cvt13_in1k.py epoch_300.pth cvt13.onnx --raw-input
    python tools/export.py configs/maskrcnn_cvt13_coco.py epoch_12.pth cvt13.xml --part backbone --precision bf16

The suffix chooses the format: .onnx (ONNX Runtime, OpenVINO), .xml (OpenVINO), .pt2 (torch.export). The
file is run before it gets its name: if it differs from PyTorch by more than its precision explains, it is kept under
another name and the exit code is 3.
"""
import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import inference
from ..deploy.export import above_tolerance, parts
from ..deploy.formats import INFERENCE_PRECISION
from ..inference.export import CALIBRATE, AboveTolerance, export
from ..launch.runs import TestRun
from . import command_line
from .outputs import add_force_argument, check_outputs

ABOVE_TOLERANCE = 3  # exit code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('file', type=Path, metavar='OUT', help='file to write: .onnx, .xml or .pt2')
    parser.add_argument('--size', type=command_line.parse_size, metavar='HxW', help='fixed height and width of '
                        'images in pixels (default: the size of the test images if they have only one; detectors take '
                        'images of any size)')
    parser.add_argument('--dynamic', action='store_true', help='allow any height and width (any number of images is '
                        'always allowed, except for a whole detector)')
    parser.add_argument('--precision', choices=INFERENCE_PRECISION, default='fp32',
                        help='precision of the network (default: %(default)s)')
    parser.add_argument('--calibrate', type=int, default=CALIBRATE, metavar='N',
                        help='number of training images to calibrate int8 with (default: %(default)s)')
    parser.add_argument('--images', metavar='DIR', help='folder of images to calibrate and compare with (default: the '
                        "config's training and test images)")
    parser.add_argument('--keep', nargs='+', default=[], metavar='LAYER',
                        help='layers, or modules with all of their layers, that int8 leaves in floating point')
    parser.add_argument('--part', choices=('model', 'backbone'), default='model', help='what to export (default: '
                        'the whole model)')
    parser.add_argument('--raw-input', action='store_true',
                        help='the file takes uint8 RGB images (B, H, W, 3) and normalises them itself')
    parser.add_argument('--data-root', metavar='DIR', help="read the data sets from DIR instead of the config's "
                        'data_root')
    add_force_argument(parser)
    command_line.add_settings(parser, TestRun, 'options')
    return parser


def run(args: argparse.Namespace) -> int:
    """Export the file that the arguments name and return the exit code."""
    outputs = [part for name in (args.file, above_tolerance(args.file)) for part in parts(name)]
    check_outputs(outputs, args.force, inputs=[args.config, args.checkpoint])
    model = inference.load(args.config, args.checkpoint, device='cpu', cfg_options=args.options,
                           data_root=args.data_root)
    try:
        export(model, args.file, size=args.size, dynamic=args.dynamic, precision=args.precision, images=args.images,
               calibrate=args.calibrate, keep=args.keep, part=args.part, raw_input=args.raw_input)
    except AboveTolerance as error:
        print(error)
        return ABOVE_TOLERANCE
    return 0


def main(argv: Sequence[str] | None = None) -> None:
    """Export the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors(OSError):  # of images that cannot be found
        sys.exit(run(args))
