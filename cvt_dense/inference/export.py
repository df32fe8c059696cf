"""Export a trained model to a file that other runtimes run."""
import copy
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from ..deploy import inputs
from ..deploy.export import Exporter, above_tolerance, parts
from ..deploy.formats import check_format
from ..errors import UserError, checked
from ..images import images_below
from .model import Model
from .slices import as_loaded

CALIBRATE = 128  # images that int8 is calibrated with
SAMPLED = 32  # test images whose sizes are read


class AboveTolerance(UserError):
    """The outputs of a file differ from those of PyTorch by more than its precision explains."""


@checked
def export(model: Model, file: str | Path, *, size: Sequence[int] | None = None, dynamic: bool = False,
           precision: Literal['fp32', 'bf16', 'int8'] = 'fp32', images: str | Path | None = None,
           calibrate: int = CALIBRATE, keep: Sequence[str] = (), part: Literal['model', 'backbone'] = 'model',
           raw_input: bool = False, report: Callable[[str], None] = print) -> Path:
    """Export a model, and compare the file's outputs with those of PyTorch.

    Args:
        model: what :func:`.model.load` returned, from a checkpoint.
        file: file to write; its suffix chooses the format: .onnx (ONNX Runtime, OpenVINO), .xml (OpenVINO), .pt2
            (torch.export).
        size: fixed height and width of images in pixels. Default: the size of the test images if they have only one;
            detectors take images of any size.
        dynamic: allow any height and width.
        precision: precision of the network.
        images: folder of images on which int8 is calibrated and files are compared. Default: the training and the test
            images of the config.
        calibrate: number of images that int8 is calibrated with.
        keep: layers, or modules with all of their layers, that int8 leaves in floating point.
        part: what to export.
        raw_input: the file takes uint8 RGB images (B, H, W, 3) and normalises them itself.
        report: takes a line for the user.

    Returns:
        The path of the file.

    Raises:
        UserError: an argument is not allowed, images are missing, or the model cannot be exported so.
        AboveTolerance: the file differs; it is kept as ``<stem>.above_tolerance<suffix>``.
    """
    file, cfg = Path(file), model.cfg
    check_format(file, precision)
    if size is not None and dynamic:
        raise UserError(f'size={tuple(size)} is that of all images, and dynamic allows any: leave one of them out.')
    if calibrate < 1:
        raise UserError(f'calibrate={calibrate}: allowed is a number of images from 1.')
    if precision != 'int8' and (keep or calibrate != CALIBRATE):
        raise UserError(f'keep={keep!r}, calibrate={calibrate}: these are for int8, and precision is {precision}.')
    network = model.network
    if next(network.parameters()).device.type != 'cpu':
        network = copy.deepcopy(network).cpu()
    if hasattr(network, 'exported'):
        raise UserError(f'{network.exported.file} is exported already: load the checkpoint.')
    padded, most = part == 'backbone' or model.task != 'detection', calibrate if precision == 'int8' else SAMPLED
    if images is not None:
        paths = sorted(images_below(images))
        if not paths:
            raise UserError(f'images={str(images)!r}: allowed is a folder with images.')
        tests = samples = [inputs.network_input(model.network, model.pipeline(as_loaded(model.read(path))), padded)
                           for path in paths[::max(1, -(-len(paths) // most))]]
    else:
        if precision == 'int8' and not cfg.get('train_dataloader'):
            raise UserError('precision=int8 reads training images: give a folder of images, or the config of the '
                            'training and its checkpoint.')
        tests = _read_tests(cfg, network, padded, report)
        samples = inputs.network_inputs(cfg, network, 'train', most, padded) if precision == 'int8' else []
    size, dynamic = choose_size(size, dynamic, model, {tuple(image.shape[2:]) for image in tests})
    classes = [*model.classes, *map(str, range(len(model.classes), getattr(network, 'num_classes', 0)))]
    about = dict(classes=classes or None, config=Path(cfg.filename).name,
                 config_hash=hashlib.sha256(cfg.pretty_text.encode()).hexdigest(), **inputs.describe(cfg))
    exporter = Exporter(network, size, about, dynamic=dynamic, part=part, raw_input=raw_input, keep=keep,
                        images=samples, tests=tests, report=report)
    if not exporter.export(file, precision):
        raise AboveTolerance(f'The outputs of {file} differ from those of PyTorch by more than {precision} explains. '
                             f'The file was kept as {above_tolerance(file).name}.')
    report(f'{file}: done, {sum(written.stat().st_size for written in parts(file)) / 1e6:.2f} MB')
    return file


def choose_size(size: Sequence[int] | None, dynamic: bool, model: Model,
                sizes: set[tuple[int, int]]) -> tuple[tuple[int, int], bool | None]:
    """Choose the size of a file's images.

    Args:
        size, dynamic, model: as for :func:`export`.
        sizes: sizes of test images; empty if they cannot be read.

    Returns:
        Height and width, and whether they are free (None: if the network can be exported so). Unless the arguments set
        otherwise, detectors take any size, and other networks that of the test images if it is one.

    Raises:
        UserError: neither arguments, nor test images, nor a detector's test pipeline name a size.
    """
    test_cfg = model.cfg.model.get('test_cfg') or {}
    if size is not None:
        if len(size) != 2 or not all(isinstance(side, int) and side >= 16 for side in size):
            raise UserError(f'size={size!r}: allowed are a height and a width of at least 16 pixels.')
        return tuple(size), dynamic
    if test_cfg.get('mode') == 'slide':
        return tuple(test_cfg['crop_size']), dynamic
    if not sizes and model.task == 'detection' and (scale := inputs.describe(model.cfg).get('scale')):
        sizes = {(min(scale), max(scale))}  # the largest that the test pipeline makes
    if not sizes:
        raise UserError('Without test images the size of the images is not known: give --size HxW.')
    any_size = model.task == 'detection' or len(sizes) > 1
    return tuple(map(max, zip(*sizes))), dynamic or (None if any_size else False)


def _read_tests(cfg: Any, network: Any, padded: bool, report: Callable[[str], None]) -> list[Tensor]:
    """Return some test images; if none can be read, report the reason and return an empty list."""
    try:
        return inputs.network_inputs(cfg, network, 'test', SAMPLED, padded)
    except Exception as error:  # data sets raise anything
        report('No test images could be read, so the file is compared on random images: '
               + ' '.join(str(error).split()))
        return []
