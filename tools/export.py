"""Exports a trained network as a file that runs without this package, and checks that file.

    python tools/export.py configs/cvt13_in1k.py epoch_300.pth cvt13.onnx --raw-input
    python tools/export.py configs/maskrcnn_cvt13_coco.py epoch_12.pth cvt13.xml --part backbone --precision bf16

The suffix says what is written: .onnx (ONNX Runtime, TensorRT, OpenVINO), .xml (OpenVINO), .pt2 (torch.export). The
file is run before it gets its name: if it differs from PyTorch by more than its precision explains, it is kept under
another name and the exit code is 3.
"""
import argparse
import copy
import hashlib
import sys
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

from _evaluate import evaluate, images_per_second, print_table
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import load_checkpoint
from torch import nn

from cvt_dense.deploy.check import random_images
from cvt_dense.deploy.cpu import advice, cpu_features
from cvt_dense.deploy.export import PRECISIONS, Exporter, Options
from cvt_dense.deploy.formats import check_format
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.errors import UserError
from cvt_dense.launch import command_line
from cvt_dense.launch.calibration import calibration_images, test_size
from cvt_dense.launch.cfg_options import OptionsAction
from cvt_dense.launch.checks.weights import check_checkpoint
from cvt_dense.launch.read import read_config
from cvt_dense.weights import register_safe_loading

ABOVE_TOLERANCE = 3  # exit code


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('file', type=Path, metavar='OUT', help='file to write: .onnx, .xml or .pt2')
    parser.add_argument('--size', metavar='HxW',
                        help="height and width of the image in pixels (default: the test pipeline's)")
    parser.add_argument('--dynamic', action='store_true', help='height and width are free (the batch always is, but '
                        'for a whole detector)')
    parser.add_argument('--precision', nargs='+', choices=PRECISIONS, default=['fp32'], metavar='PRECISION',
                        help=f'of the network: {", ".join(PRECISIONS)} (default: fp32); several write a file each, '
                        'OUT_<precision>')
    parser.add_argument('--calibrate', type=int, metavar='N',
                        help='training images that int8 takes its ranges from (default: 128, or all of fewer)')
    parser.add_argument('--part', choices=('model', 'backbone'), default='model', help='what to export (default: '
                        'the whole model)')
    parser.add_argument('--raw-input', nargs='?', const='NHWC', choices=('NHWC', 'NCHW'), metavar='LAYOUT',
                        help='the file takes uint8 RGB images and normalises them itself: NHWC, (B, H, W, 3) '
                        '(default), or NCHW')
    parser.add_argument('--argmax', action='store_true', help="a segmentor's label map instead of its logits")
    parser.add_argument('--keep', nargs='+', default=[], metavar='LAYER',
                        help='layers, or modules with all theirs, that int8 leaves in float')
    parser.add_argument('--sensitivity', action='store_true', help='list the layers by what int8 costs in each alone')
    parser.add_argument('--evaluate', action='store_true', help="metrics of the config's test set for the checkpoint "
                        'and each file, in one table')
    parser.add_argument('--data-root', metavar='DIR', help="read the data sets from DIR instead of the config's "
                        'data_root')
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE',
                        help='override settings of the config')
    parser.add_argument('--traceback', action=command_line.ShowTraceback, nargs=0,
                        help='show where in the code an error came from')
    return parser


def parse_size(text: str | None, cfg: Config) -> tuple[int, int]:
    """'800x1280' to (800, 1280), height first; '224' to (224, 224); None: the test pipeline's."""
    if text is None:
        size = test_size(cfg)
        if size is None:
            raise UserError(f'{cfg.filename}: the test pipeline names no size: give --size HxW.')
        return size
    height, _, width = text.partition('x')
    if not (height.isdigit() and (width or height).isdigit()):
        raise UserError(f'--size {text}: write height and width in pixels, such as 800x1280.')
    return int(height), int(width or height)


def build(cfg: Config, checkpoint: str) -> tuple[nn.Module, list[str] | None]:
    """The model with its weights, and its classes' names."""
    register_safe_loading()
    check_checkpoint(cfg, checkpoint, strict=True)
    model = revert_sync_batchnorm(MODELS.build(copy.deepcopy(cfg.model)))
    meta = load_checkpoint(model, checkpoint, map_location='cpu', logger='silent').get('meta') or {}
    classes = (meta.get('dataset_meta') or {}).get('classes')
    return model.eval(), None if classes is None else [
        *classes, *map(str, range(len(classes), getattr(model, 'num_classes', 0)))]  # more outputs than names


def run(args: argparse.Namespace) -> int:
    files = {precision: args.file if len(args.precision) == 1 else args.file.with_stem(f'{args.file.stem}_{precision}')
             for precision in args.precision}
    for precision, file in files.items():
        check_format(file, precision)
    cfg = read_config(args)
    size = parse_size(args.size, cfg)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model, classes = build(cfg, args.checkpoint)
    images = calibration_images(cfg, args.calibrate) if 'int8' in files or args.sensitivity else []
    options = Options(size, args.dynamic, args.part, args.raw_input, args.argmax, tuple(args.keep))
    about = dict(classes=classes, config=Path(args.config).name,
                 config_hash=hashlib.sha256(cfg.pretty_text.encode()).hexdigest())
    exporter = Exporter(model, options, about, images)
    if args.sensitivity:
        print('int8 in one layer alone: relative error of the outputs')
        for name, cost in exporter.sensitivity():
            print(f'  {cost:.5f}  {name}')
    written = [precision for precision, file in files.items() if exporter.export(file, precision)]
    for precision, file in files.items():
        print(f'{file}: done, {weight(file):.2f} MB' if precision in written else
              f'{file} was not written: it would differ from PyTorch by more than {precision} explains. What would '
              f'have been in it is in {file.stem}.above_tolerance{file.suffix}.')
    if args.evaluate:
        compare(args, exporter, {precision: files[precision] for precision in written})
    return 0 if len(written) == len(files) else ABOVE_TOLERANCE


def compare(args: argparse.Namespace, exporter: Exporter, files: dict[str, Path]) -> None:
    """Prints the metrics of the checkpoint and of each file."""
    image = random_images(exporter.options.size, channels=exporter.channels)
    rows = {'PyTorch, fp32': (evaluate(args, None), sum(x.nbytes for x in exporter.model.state_dict().values()) / 1e6,
                              images_per_second(exporter.reference, image))}
    for precision, file in files.items():
        opened = open_exported(file)
        rows[f'{file.name}, {precision}'] = (evaluate(args, file), weight(file),
                                             images_per_second(opened, exporter.to_input(image)))
    print_table(rows)
    print(advice(cpu_features()))


def weight(file: Path) -> float:
    """Of a file in 1e6 bytes, with the weights that OpenVINO puts beside it."""
    parts = [file, file.with_suffix('.bin')] if file.suffix == '.xml' else [file]
    return sum(part.stat().st_size for part in parts) / 1e6


def main() -> None:
    args = build_parser().parse_args()
    with command_line.report_errors(*command_line.SETUP_ERRORS):
        sys.exit(run(args))


if __name__ == '__main__':
    main()
