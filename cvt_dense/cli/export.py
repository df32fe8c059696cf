"""Exports a trained network as an ONNX, OpenVINO or PyTorch file, and checks that file.

    python tools/export.py configs/cvt13_in1k.py epoch_300.pth cvt13.onnx --raw-input
    python tools/export.py configs/maskrcnn_cvt13_coco.py epoch_12.pth cvt13.xml --part backbone --precision bf16

The suffix chooses the format: .onnx (ONNX Runtime, OpenVINO), .xml (OpenVINO), .pt2 (torch.export). The
file is run before it gets its name: if it differs from PyTorch by more than its precision explains, it is kept under
another name and the exit code is 3.
"""
import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config
from torch import Tensor, nn

from .. import inference
from ..deploy import inputs
from ..deploy.export import Exporter, above_tolerance, parts
from ..deploy.formats import INFERENCE_PRECISION, check_format
from ..errors import UserError
from ..launch.runs import TestRun
from . import command_line
from .get_flops import parse_size
from .outputs import add_force_argument, check_outputs

ABOVE_TOLERANCE = 3  # exit code
SAMPLED = 32  # test images whose sizes are read


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('file', type=Path, metavar='OUT', help='file to write: .onnx, .xml or .pt2')
    parser.add_argument('--size', type=parse_size, metavar='HxW', help='fixed height and width of images in pixels '
                        '(default: the size of the test images if they have only one; detectors take images of any '
                        'size)')
    parser.add_argument('--dynamic', action='store_true', help='allow any height and width (any number of images is '
                        'always allowed, except for a whole detector)')
    parser.add_argument('--precision', choices=INFERENCE_PRECISION, default='fp32',
                        help='precision of the network (default: %(default)s)')
    parser.add_argument('--calibrate', type=int, default=128, metavar='N',
                        help='number of training images to calibrate int8 with (default: %(default)s)')
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


def choose_size(args: argparse.Namespace, cfg: Config, task: str | None,
                sizes: set[tuple[int, int]]) -> tuple[tuple[int, int], bool | None]:
    """Choose the size of a file's images.

    Args:
        args: flags of the tool.
        cfg: the recipe's config.
        task: see :class:`cvt_dense.inference.Model`.
        sizes: sizes of test images; empty if they cannot be read.

    Returns:
        Height and width, and whether they are free (None: if the network can be exported so). Unless the flags set
        otherwise, detectors take any size, and other networks that of the test images if it is one.

    Raises:
        UserError: neither flags, nor test images, nor a detector's test pipeline name a size.
    """
    test_cfg = cfg.model.get('test_cfg') or {}
    if args.size is not None:
        return args.size, args.dynamic
    if test_cfg.get('mode') == 'slide':
        return tuple(test_cfg['crop_size']), args.dynamic
    if not sizes and task == 'detection' and (scale := inputs.describe(cfg).get('scale')):
        sizes = {(min(scale), max(scale))}  # the largest that the test pipeline makes
    if not sizes:
        raise UserError('Without test images the size of the images is not known: give --size HxW.')
    return tuple(map(max, zip(*sizes))), args.dynamic or (None if task == 'detection' or len(sizes) > 1 else False)


def read_test_images(cfg: Config, model: nn.Module, padded: bool) -> list[Tensor]:
    """Return some test images; if none can be read, print the reason and return an empty list.

    Args:
        cfg: whole config.
        model: model whose preprocessor is used.
        padded: whether images are padded as in a batch.
    """
    try:
        return inputs.network_inputs(cfg, model, 'test', SAMPLED, padded)
    except Exception as error:  # data sets raise anything
        print(f'No test images could be read, so the file is compared on random images: '
              f'{" ".join(str(error).split())[:300]}')
        return []


def run(args: argparse.Namespace) -> int:
    """Export the file that the arguments name and return the exit code."""
    check_format(args.file, args.precision)
    outputs = [part for name in (args.file, above_tolerance(args.file)) for part in parts(name)]
    check_outputs(outputs, args.force, inputs=[args.config, args.checkpoint])
    trained = inference.load(args.config, args.checkpoint, device='cpu', cfg_options=args.options,
                             data_root=args.data_root)
    cfg, model, task = trained.cfg, trained.network, trained.task
    if args.precision == 'int8' and not cfg.get('train_dataloader'):
        raise UserError('--precision int8 reads training images: give the config of the training, and its checkpoint.')
    classes = [*trained.classes, *map(str, range(len(trained.classes), getattr(model, 'num_classes', 0)))]
    padded = args.part == 'backbone' or task != 'detection'
    tests = read_test_images(cfg, model, padded)
    images = inputs.network_inputs(cfg, model, 'train', args.calibrate, padded) if args.precision == 'int8' else []
    size, dynamic = choose_size(args, cfg, task, {tuple(image.shape[2:]) for image in tests})
    about = dict(classes=classes or None, config=Path(args.config).name,
                 config_hash=hashlib.sha256(cfg.pretty_text.encode()).hexdigest(), **inputs.describe(cfg))
    exporter = Exporter(model, size, about, dynamic=dynamic, part=args.part, raw_input=args.raw_input, keep=args.keep,
                        images=images, tests=tests)
    if not exporter.export(args.file, args.precision):
        print(f'The outputs of {args.file} differ from those of PyTorch by more than {args.precision} explains. The '
              f'file was kept as {above_tolerance(args.file).name}.')
        return ABOVE_TOLERANCE
    print(f'{args.file}: done, {sum(part.stat().st_size for part in parts(args.file)) / 1e6:.2f} MB')
    return 0


def main(argv: Sequence[str] | None = None) -> None:
    """Export the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors(OSError):  # of images that cannot be found
        sys.exit(run(args))
