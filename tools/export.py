"""Export a trained network as a file that runs without this package, and check that file.

    python tools/export.py configs/cvt13_in1k.py epoch_300.pth cvt13.onnx --raw-input
    python tools/export.py configs/maskrcnn_cvt13_coco.py epoch_12.pth cvt13.xml --part backbone --precision bf16

The suffix chooses the format: .onnx (ONNX Runtime, TensorRT, OpenVINO), .xml (OpenVINO), .pt2 (torch.export). The
file is run before it gets its name: if it differs from PyTorch by more than its precision explains, it is kept under
another name and the exit code is 3.
"""
import argparse
import copy
import hashlib
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(folder) for folder in Path(__file__).resolve().parents[:2]]

from _evaluate import evaluate, images_per_second, print_table
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from cvt_dense.config.class_folders import set_classes
from cvt_dense.config.options import OptionsAction
from cvt_dense.config.read import read_config
from cvt_dense.deploy import inputs
from cvt_dense.deploy.export import PRECISIONS, Exporter, Options, above_tolerance, parts
from cvt_dense.deploy.formats import check_format
from cvt_dense.deploy.runtime import open_exported
from cvt_dense.deploy.wrappers import task_of
from cvt_dense.errors import UserError
from cvt_dense.inference.model import check_checkpoint
from cvt_dense.launch import command_line
from cvt_dense.launch.outputs import add_force_argument, check_outputs
from cvt_dense.weights import register_safe_loading, select_weights

ABOVE_TOLERANCE = 3  # exit code
SAMPLED = 32  # test images whose sizes are read


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('config', help='config file (a published model takes the place of config and checkpoint)')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('file', type=Path, metavar='OUT', help='file to write: .onnx, .xml or .pt2')
    parser.add_argument('--size', metavar='HxW', help='the one height and width of images in pixels (default: that of '
                        'the test images if they all have the same; detectors take images of any size)')
    parser.add_argument('--dynamic', action='store_true', help='allow any height and width (any number of images is '
                        'always allowed, except for a whole detector)')
    parser.add_argument('--precision', nargs='+', choices=PRECISIONS, default=['fp32'], metavar='PRECISION',
                        help=f'precision of the network: {", ".join(PRECISIONS)} (default: fp32); several write a '
                        'file each, OUT_<precision>')
    parser.add_argument('--calibrate', type=int, metavar='N',
                        help='training images that int8 takes its ranges from (default: 128, or all of fewer)')
    parser.add_argument('--part', choices=('model', 'backbone'), default='model', help='what to export (default: '
                        'the whole model)')
    parser.add_argument('--raw-input', nargs='?', const='NHWC', choices=('NHWC', 'NCHW'), metavar='LAYOUT',
                        help='the file takes uint8 RGB images and normalises them itself: NHWC, (B, H, W, 3) '
                        '(default), or NCHW')
    parser.add_argument('--argmax', action='store_true', help="a segmentor's label map instead of its logits")
    parser.add_argument('--keep', nargs='+', default=[], metavar='LAYER',
                        help='layers, or modules with all of their layers, that int8 leaves in floating point')
    parser.add_argument('--evaluate', action='store_true', help="metrics of the config's test set for the checkpoint "
                        'and each file, in one table')
    parser.add_argument('--data-root', metavar='DIR', help="read the data sets from DIR instead of the config's "
                        'data_root')
    parser.add_argument('--cfg-options', nargs='+', action=OptionsAction, metavar='KEY=VALUE',
                        help='override settings of the config')
    add_force_argument(parser)
    return parser


def parse_size(text: str) -> tuple[int, int]:
    """Turn '800x1280' into (800, 1280), height first, and '224' into (224, 224)."""
    height, _, width = text.partition('x')
    if not (height.isdigit() and (width or height).isdigit()):
        raise UserError(f'--size {text}: write height and width in pixels, such as 800x1280.')
    return int(height), int(width or height)


def choose_size(args: argparse.Namespace, cfg: Config, task: str | None,
                found: list[tuple[int, int]]) -> tuple[tuple[int, int], bool | None]:
    """Choose the size of a file's images.

    Args:
        args: flags of the tool.
        cfg: the recipe's config.
        task: task of the model, see :func:`task_of`.
        found: sizes of test images; empty if they cannot be read.

    Returns:
        Height and width, and whether they are free (None: if the network can be exported so). Unless the flags set
        otherwise, detectors take any size, and other networks that of the test images if it is one.

    Raises:
        UserError: neither flags nor test images nor the config name a size.
    """
    if args.size is not None:
        return parse_size(args.size), args.dynamic
    size, one = inputs.config_size(cfg)
    if found and not one:
        size, one = tuple(map(max, zip(*found))), len(found) == 1
    if size is None:
        raise UserError(f'{cfg.filename}: the config names no size of test images: give --size HxW.')
    return size, args.dynamic or (None if task == 'detection' or not one else False)


def build(cfg: Config, checkpoint: str) -> tuple[nn.Module, list[str] | None]:
    """Return the model with its weights, and its classes' names."""
    register_safe_loading()
    model = revert_sync_batchnorm(MODELS.build(copy.deepcopy(cfg.model)))
    content = check_checkpoint(model, checkpoint, strict=True)
    model.load_state_dict(select_weights(content))
    meta = content.get('meta') or {}
    classes = (meta.get('dataset_meta') or {}).get('classes')
    return model.eval(), None if classes is None else [
        *classes, *map(str, range(len(classes), getattr(model, 'num_classes', 0)))]  # more outputs than names


def read_test_images(cfg: Config, model: nn.Module, padded: bool) -> list[Tensor]:
    """Return some test images; if none can be read, print the reason and return an empty list.

    Args:
        cfg: whole config.
        model: model whose preprocessor is used.
        padded: whether images are padded as in a batch.
    """
    try:
        return inputs.network_inputs(cfg, model, 'test', limit=SAMPLED, padded=padded)
    except Exception as error:  # data sets raise anything
        print(f'No test images could be read, so files are compared on random images: '
              f'{" ".join(str(error).split())[:300]}')
        return []


def run(args: argparse.Namespace) -> int:
    """Export the files that the arguments name and return the exit code."""
    files = {precision: args.file if len(args.precision) == 1 else args.file.with_stem(f'{args.file.stem}_{precision}')
             for precision in args.precision}
    for precision, file in files.items():
        check_format(file, precision)
    outputs = [part for file in files.values() for name in (file, above_tolerance(file)) for part in parts(name)]
    check_outputs(outputs, args.force, inputs=[args.config, args.checkpoint])
    cfg = read_config(args.config, args.cfg_options, args.data_root)
    set_classes(cfg, args.checkpoint)
    if args.raw_input and inputs.pipeline_normalise(cfg) is not None:
        raise UserError('--raw-input: the test pipeline of the config normalises the images (Normalize), which an '
                        'exported file cannot repeat on raw ones: leave the flag out.')
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model, classes = build(cfg, args.checkpoint)
    padded = args.part == 'backbone' or task_of(model) != 'detection'
    tests = read_test_images(cfg, model, padded)
    images = inputs.network_inputs(cfg, model, 'train', args.calibrate, padded=padded) if 'int8' in files else []
    size, dynamic = choose_size(args, cfg, task_of(model), inputs.sizes(tests))
    options = Options(size, dynamic, args.part, args.raw_input, args.argmax, tuple(args.keep))
    about = dict(classes=classes, config=Path(args.config).name,
                 config_hash=hashlib.sha256(cfg.pretty_text.encode()).hexdigest(), **inputs.describe(cfg, model))
    exporter = Exporter(model, options, about, images, tests)
    written = [precision for precision, file in files.items() if _export(exporter, file, precision)]
    for precision, file in files.items():
        print(f'{file}: done, {weight(file):.2f} MB' if precision in written else
              f'{file} was not written.')
    complete = len(written) == len(files)
    if args.evaluate:
        complete &= compare(args, exporter, {precision: files[precision] for precision in written})
    return 0 if complete else ABOVE_TOLERANCE


def _export(exporter: Exporter, file: Path, precision: str) -> bool:
    """Write one file and return whether it is within the tolerance; the other files follow if it cannot be written."""
    try:
        if exporter.export(file, precision):
            return True
        print(f'The outputs of {file} differ from those of PyTorch by more than {precision} explains. The file was '
              f'kept as {above_tolerance(file).name}.')
    except UserError:
        raise
    except Exception:  # exporters raise anything
        traceback.print_exc()
    return False


def compare(args: argparse.Namespace, exporter: Exporter, files: dict[str, Path]) -> bool:
    """Print the metrics and the speed of the checkpoint and of each file.

    Args:
        args: command line.
        exporter: exporter with the PyTorch reference and the example images.
        files: written files by precision.

    Returns:
        Whether all of them could be evaluated.
    """
    image = next(iter(exporter.examples()))
    rows = {'PyTorch, fp32': (evaluate(args, None), sum(x.nbytes for x in exporter.model.state_dict().values()) / 1e6,
                              images_per_second(exporter.reference, image))}
    failures = []
    for precision, file in files.items():
        try:
            metrics = evaluate(args, file)
        except UserError as error:  # the other results are printed nevertheless
            failures.append(str(error))
            continue
        run = open_exported(file).run_normalised
        rows[f'{file.name}, {precision}'] = metrics, weight(file), images_per_second(run, image)
    print_table(rows)
    for failure in failures:
        print(failure, file=sys.stderr)
    return not failures


def weight(file: Path) -> float:
    """Return the size of a file in 1e6 bytes, with the weights that OpenVINO puts beside it."""
    return sum(part.stat().st_size for part in parts(file)) / 1e6


def main(argv: Sequence[str] | None = None) -> None:
    """Export the checkpoint that the command line names."""
    args = build_parser().parse_args(command_line.expand_published(argv))
    with command_line.report_errors():
        sys.exit(run(args))


if __name__ == '__main__':
    main()
