"""From a model to checked files."""
import copy
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from . import detectors, formats, memory, quantize, wrappers
from .check import check, compare_detections, random_images
from .runtime import MIN_SIDE, open_exported

DTYPES = dict(fp16=torch.float16, bf16=torch.bfloat16)
TRACED_SIDE = 320  # pixels, of networks for any size: a map of one cell would be taken for one that always is
PRECISIONS = ('fp32', 'fp16', 'bf16', 'int8')


class Options(NamedTuple):
    """What is asked for.

    Attributes:
        size: height and width of the image, in pixels; with ``dynamic`` an example.
        dynamic: height and width are free.
        part: 'model' or 'backbone'.
        raw_input: layout of raw images, 'NHWC' or 'NCHW'; None: the image comes normalised.
        argmax: a segmentor's label map instead of logits.
        keep: names of layers that stay in float under int8, or of modules that hold such.
    """
    size: tuple[int, int]
    dynamic: bool = False
    part: str = 'model'
    raw_input: str | None = None
    argmax: bool = False
    keep: tuple[str, ...] = ()


def channels_of(model: nn.Module) -> int:
    """Channels of the images that a model takes."""
    return getattr(model.backbone, 'in_channels', 3)


def normalisation_of(model: nn.Module) -> dict[str, Any]:
    """``mean`` and ``std`` as the network takes them, ``bgr_to_rgb``, and ``flip``: whether the network takes BGR."""
    preprocessor = model.data_preprocessor
    mean, std = (getattr(preprocessor, name, None) for name in ('mean', 'std'))
    turned = bool(getattr(preprocessor, '_channel_conversion', False))
    channels = channels_of(model)
    return dict(mean=[0.] * channels if mean is None else mean.flatten().tolist(),
                std=[1.] * channels if std is None else std.flatten().tolist(),
                bgr_to_rgb=turned,
                flip=channels == 3 and wrappers.task_of(model) != 'classification' and not turned)


def _resize(image: Tensor, size: tuple[int, int]) -> Tensor:
    """A raw image, uint8 (1, 3, H, W), at another size."""
    if image.shape[2:] == torch.Size(size):
        return image
    resized = F.interpolate(image.float(), size, mode='bilinear', antialias=True)
    return resized.round().clamp(0, 255).to(torch.uint8)


class Exporter:
    """Writes files of one model, and compares each with PyTorch.

    Args:
        model: classifier, segmentor or detector with its weights; not changed.
        options: what is asked for.
        about: ``classes``, ``config`` and ``config_hash`` of the metadata.
        images: of the training set, raw: uint8 (1, 3, H, W), RGB. int8 needs them; files are compared on the first.
        report: takes a line for the user.

    Raises:
        UserError: the model or a part of it cannot be exported so, or ``options`` name a layer that is not there.
    """

    def __init__(self, model: nn.Module, options: Options, about: dict[str, Any], images: Sequence[Tensor] = (),
                 report: Callable[[str], None] = print):
        height, width = options.size
        if min(height, width) < MIN_SIDE:
            raise UserError(f'--size {height}x{width}: CvT needs at least {MIN_SIDE}x{MIN_SIDE} pixels (height x '
                            'width).')
        self.channels = channels_of(model)
        if self.channels != 3 and (options.raw_input or images):
            raise UserError(f'images of {self.channels} channels: their pipeline normalises them, so --raw-input and '
                            'int8, which begin with raw RGB images, are not for them. Leave the option out.')
        self.model, self.options, self.about, self.report = model.eval(), options, about, report
        self.normalisation = normalisation_of(model)
        self.normalise = self._normalise('NCHW')
        self.network = wrappers.wrap(model, options.part, options.argmax)
        self.names = list(self.network.names)
        self.batch = 1 if isinstance(self.network, detectors.Detector) else None
        self.layers = quantize.layers(self._whole())
        self.keep = quantize.select(list(self.layers), options.keep)
        self.images = [self._fit(image) for image in images]

    # -- inputs and outputs ----------------------------------------------------------------------------------

    def _normalise(self, layout: str) -> nn.Module:
        mean, std, _, flip = self.normalisation.values()
        return wrappers.Normalise(mean, std, flip, layout)

    def _fit(self, image: Tensor) -> Tensor:
        """A raw image at the file's size."""
        return image if self.options.dynamic else _resize(image, self.options.size)

    def _pictures(self, size: tuple[int, int], batch: int, first: int) -> Tensor:
        """Raw images to compare on: of the training set where there are some, else random ones."""
        if not self.images:
            return random_images(size, batch, first, self.channels)
        chosen = [self.images[(first + i) % len(self.images)] for i in range(batch)]
        return torch.cat([_resize(image, size) for image in chosen])

    def to_input(self, images: Tensor) -> Tensor:
        """Raw images, uint8 (B, 3, H, W), RGB, as the file takes them."""
        if self.options.raw_input == 'NHWC':
            return images.permute(0, 2, 3, 1).contiguous()
        return images if self.options.raw_input else self.normalise(images)

    def reference(self, images: Tensor) -> dict[str, Tensor]:
        """What the model itself, as it was trained, makes of raw images."""
        images = self.normalise(images)
        with torch.no_grad():
            if isinstance(self.network, detectors.Detector):
                return dict(zip(self.names, detectors.reference(self.network, self.model, images)))
            return dict(zip(self.names, wrappers.plain(self.model, self.options.part, self.options.argmax)(images)))

    def metadata(self, precision: str) -> dict[str, Any]:
        options, backbone = self.options, self.model.backbone
        maps = getattr(backbone, 'out_type', 'featmap') == 'featmap'
        mean, std, turned, _ = self.normalisation.values()
        return dict(
            format_version=1, part=options.part, task=wrappers.task_of(self.model), precision=precision,
            inference_precision=formats.INFERENCE_PRECISION[precision], raw_input=options.raw_input is not None,
            layout=options.raw_input or 'NCHW', input_size=None if options.dynamic else list(options.size),
            dynamic=options.dynamic, batch=self.batch, mean=mean, std=std, bgr_to_rgb=turned, outputs=self.names,
            out_indices=list(getattr(backbone, 'out_indices', [])), out_channels=list(backbone.out_channels),
            out_strides=list(backbone.out_strides) if maps else [], argmax=options.argmax,
            mask_thr=getattr(self.network, 'mask_thr', None), **self.about)

    # -- writing ---------------------------------------------------------------------------------------------

    def _whole(self, dtype: torch.dtype | None = None) -> nn.Module:
        """What the file holds."""
        network = self.network if dtype is None else copy.deepcopy(self.network)
        layout = self.options.raw_input
        return wrappers.Exported(network, self._normalise(layout) if layout else None, dtype).eval()

    def _free_dimensions(self) -> dict[int, str]:
        height = 1 if self.options.raw_input == 'NHWC' else 2
        free = {} if self.batch else {0: 'batch'}
        return {**free, height: 'height', height + 1: 'width'} if self.options.dynamic else free

    def _trace(self, network: nn.Module) -> torch.export.ExportedProgram:
        size = self.options.size
        if self.options.dynamic:
            size = tuple(max(side, TRACED_SIDE) for side in size)
        example = self.to_input(random_images(size, self.batch or 2, channels=self.channels))
        try:
            return formats.trace(network, example, self._free_dimensions())
        except Exception as error:
            if not self.options.dynamic:
                raise
            reason = ' '.join(str(error).split())[:200]
            raise UserError('this network cannot be exported for images of any size (windowed attention, for one, '
                            f'depends on it): leave --dynamic out and give --size HxW. [{reason}]') from error

    @cached_property
    def _onnx(self) -> Any:
        """The float32 model, which every .onnx and .xml starts from."""
        opset = getattr(self.network, 'opset', formats.OPSET)
        return formats.to_onnx(self._trace(self._whole()), self.names, self._free_dimensions(), opset,
                               detectors.translations(opset))

    @cached_property
    def _onnx_int8(self) -> Any:
        return quantize.quantize_onnx(self._onnx, self.images, self.to_input, self.layers, self.keep, self.report,
                                      self._judge)

    def _judge(self, actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
        if not isinstance(self.network, detectors.Detector):
            return quantize.error(actual, expected)
        unmatched = compare_detections(*(dict(zip(self.names, outputs)) for outputs in (actual, expected)))[0]
        return unmatched.relative

    def _write(self, path: Path, precision: str) -> None:
        metadata = self.metadata(precision)
        if path.suffix == '.pt2':
            formats.save_pt2(self._program(precision), path, metadata)
            return
        model = copy.deepcopy(self._onnx_int8 if precision == 'int8' else self._onnx)
        if path.suffix == '.onnx':
            formats.save_onnx(formats.lower_onnx(model, precision), path, metadata)
        else:
            formats.save_openvino(quantize.for_openvino(model) if precision == 'int8' else model, path, metadata)
            if precision == 'int8':
                self.report(f'  {quantize.count_openvino(path)} layers run in int8 in OpenVINO on this CPU')

    def _program(self, precision: str) -> torch.export.ExportedProgram:
        if isinstance(self.network, detectors.Detector):
            raise UserError('torch.export has no operators for what a whole detector does after its heads: write '
                            '.onnx or .xml, or export --part backbone.')
        program = self._trace(self._whole(DTYPES.get(precision)))
        if precision != 'int8':
            return program
        return self._trace(quantize.quantize_program(program, self.images, self.to_input, self.layers, self.keep,
                                                     self.report))

    def sensitivity(self) -> list[tuple[str, float]]:
        """What int8 in each layer alone costs, see :func:`quantize.sensitivity`; of a detector up to its first head."""
        run = self.network.dense if isinstance(self.network, detectors.Detector) else self.network
        images = [self.normalise(image) for image in self.images[:quantize.JUDGED]]
        return quantize.sensitivity(self._whole(), run, images)

    def check(self, path: Path, precision: str) -> bool:
        """Whether a file gives what the model gives, on two sizes or, where it takes one only, on two batches."""
        opened = open_exported(path)
        (height, width), batch = self.options.size, self.batch or 2
        other = (max(MIN_SIDE, height * 3 // 4 + 1), width + 6) if self.options.dynamic else (height, width)
        images = [self._pictures((height, width), 1, 0), self._pictures(other, batch, 1)]
        return check(lambda image: opened(self.to_input(image)), self.reference, images, precision, self.report)

    def export(self, path: Path, precision: str = 'fp32') -> bool:
        """Writes a file and checks it.

        Args:
            path: its suffix says the format. Above the tolerance the file is kept as
                ``<stem>.above_tolerance<suffix>`` instead.
            precision: one of ``PRECISIONS``.

        Returns:
            Whether the file is within the tolerance, and so at ``path``.

        Raises:
            UserError: see :func:`formats.check_format`; this format cannot hold this model.
        """
        formats.check_format(path, precision)
        memory.check_attention(self.model.backbone, self.options.size, path.suffix)
        unchecked = path.with_name(f'{path.stem}.unchecked{path.suffix}')
        self._write(unchecked, precision)
        self.report(f'{path.name} ({self.options.part}, {precision}) beside PyTorch in float32:')
        good = self.check(unchecked, precision)
        final = path if good else path.with_name(f'{path.stem}.above_tolerance{path.suffix}')
        for suffix in ('.xml', '.bin') if path.suffix == '.xml' else (path.suffix, ):
            unchecked.with_suffix(suffix).replace(final.with_suffix(suffix))
        return good


def export(model: nn.Module, path: Path, options: Options, about: dict[str, Any], precision: str = 'fp32',
           images: Sequence[Tensor] = (), report: Callable[[str], None] = print) -> Path | None:
    """One file of one model: ``path``, or None if it is not within the tolerance; see :class:`Exporter`."""
    return path if Exporter(model, options, about, images, report).export(path, precision) else None
