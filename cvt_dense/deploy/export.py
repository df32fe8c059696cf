"""Export a model to files and compare them with PyTorch."""
import copy
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError
from ..models.cvt import CvT
from . import detectors, formats, int8, memory, operators, wrappers
from .check import check, random_images
from .runtime import MIN_SIDE, file_input, open_exported, takes_bgr

DTYPES = dict(fp16=torch.float16, bf16=torch.bfloat16)
TRACED_SIDE = 320  # pixels, of networks for any size: a map of one cell would be taken for one that always is
PRECISIONS = ('fp32', 'fp16', 'bf16', 'int8')


class Options(NamedTuple):
    """Settings of an export.

    Attributes:
        size: height and width of the image, in pixels; with ``dynamic`` an example.
        dynamic: height and width are free; None: they are if the network can be traced so.
        part: 'model' or 'backbone'.
        raw_input: layout of raw images, 'NHWC' or 'NCHW'; None: the image comes normalised.
        argmax: a segmentor's label map instead of logits.
        keep: names of layers that stay in float under int8, or of modules that hold such.
    """
    size: tuple[int, int]
    dynamic: bool | None = False
    part: str = 'model'
    raw_input: str | None = None
    argmax: bool = False
    keep: tuple[str, ...] = ()


class Exporter:
    """Writes files of one model, and compares each with PyTorch.

    Args:
        model: classifier, segmentor or detector with its weights; not changed.
        options: settings of the export.
        about: ``classes``, ``config`` and ``config_hash`` of the metadata, and what :func:`inputs.describe` returns.
        images: what the network gets of training images, float32 (1, C, H, W), which int8 is calibrated with.
        tests: the same for test images, on which files are compared. Default: random images.
        report: takes a line for the user.

    Raises:
        UserError: the model or a part of it cannot be exported so, or ``options`` name a layer that does not exist.
    """

    def __init__(self, model: nn.Module, options: Options, about: dict[str, Any], images: Sequence[Tensor] = (),
                 tests: Sequence[Tensor] = (), report: Callable[[str], None] = print):
        height, width = options.size
        if min(height, width) < MIN_SIDE:
            raise UserError(f'--size {height}x{width}: CvT needs at least {MIN_SIDE}x{MIN_SIDE} pixels (height x '
                            'width).')
        self.channels = getattr(model.backbone, 'in_channels', 3)
        if self.channels != 3 and options.raw_input:
            raise UserError(f'--raw-input: raw images have 3 channels, and this network takes {self.channels}.')
        self.model, self.options, self.report, self.dynamic = model.eval(), options, report, options.dynamic
        self.network = wrappers.wrap(model, options.part, options.argmax)
        self.names = list(self.network.names)
        self.batch = 1 if isinstance(self.network, detectors.Detector) else None
        self.layers = int8.layers(self.network)
        usual = [name for name in int8.KEPT if any(layer.startswith(name + '.') for layer in self.layers)]
        self.keep = int8.select(list(self.layers), [*options.keep, *usual])
        self.about = {**self._common_metadata(), **about}
        self.normalise = wrappers.Normalise(self.about['mean'], self.about['std'],
                                            self.channels == 3 and takes_bgr(self.about))
        self.images, self.tests = images, tests
        self.traced: dict[torch.dtype | None, torch.export.ExportedProgram] = {}  # by the network's precision

    # -- inputs and outputs ----------------------------------------------------------------------------------

    def _common_metadata(self) -> dict[str, Any]:
        """Return the metadata that all files have in common."""
        options, backbone = self.options, self.model.backbone
        maps = getattr(backbone, 'out_type', 'featmap') == 'featmap'
        mean, std = (getattr(self.model.data_preprocessor, name, None) for name in ('mean', 'std'))
        return dict(
            format_version=1, part=options.part, task=wrappers.task_of(self.model),
            raw_input=options.raw_input is not None, layout=options.raw_input or 'NCHW',
            mean=[0.] * self.channels if mean is None else mean.flatten().tolist(),
            std=[1.] * self.channels if std is None else std.flatten().tolist(), bgr_to_rgb=False,
            crop_pct=None, crop_mode=None, interpolation=None, outputs=self.names,
            out_indices=list(getattr(backbone, 'out_indices', [])), out_channels=list(backbone.out_channels),
            out_strides=list(backbone.out_strides) if maps else [], argmax=options.argmax,
            mask_thr=getattr(self.network, 'mask_thr', None),
            score_thr=0.3 if isinstance(self.network, detectors.Detector) else None)

    def metadata(self, precision: str) -> dict[str, Any]:
        """Return a file's metadata, see :mod:`cvt_dense.deploy`."""
        return dict(self.about, precision=precision, inference_precision=formats.INFERENCE_PRECISION[precision],
                    input_size=None if self.dynamic else list(self.options.size), dynamic=self.dynamic,
                    batch=self.batch)

    def _resize(self, image: Tensor, size: tuple[int, int]) -> Tensor:
        """Resize what the network gets of an image; to whole pixel values if the file takes such."""
        if image.shape[2:] == torch.Size(size):
            return image
        image = F.interpolate(image, size, mode='bilinear', antialias=True)
        if not self.about['raw_input']:
            return image
        pixels = file_input(image, dict(self.about, layout='NCHW'))
        return self.normalise(pixels)

    def examples(self) -> list[Tensor]:
        """Return two batches to compare on, of two sizes if the file takes such; test images where there are any."""
        (height, width), batch = self.options.size, self.batch or 2
        other = (max(MIN_SIDE, height * 3 // 4 + 1), width + 6) if self.dynamic else (height, width)
        if not self.tests:
            return [self.normalise(random_images(*given, self.channels)) for given in (
                ((height, width), 1, 0), (other, batch, 1))]
        first = self.tests[0] if self.dynamic else self._resize(self.tests[0], (height, width))
        more = [self.tests[i % len(self.tests)] for i in range(1, batch + 1)]
        return [first, torch.cat([self._resize(image, other) for image in more])]

    def reference(self, images: Tensor) -> dict[str, Tensor]:
        """Run the model itself, as it was trained, on what the network gets of images."""
        network = wrappers.wrap(self.model, self.options.part, self.options.argmax, exportable=False)
        with torch.no_grad():
            return dict(zip(self.names, network(images)))

    # -- writing ---------------------------------------------------------------------------------------------

    def _program(self, dtype: torch.dtype | None = None) -> nn.Module:
        """Return the network that the file contains."""
        network = self.network if dtype is None else copy.deepcopy(self.network)
        normalise = copy.copy(self.normalise) if self.options.raw_input else None
        if normalise is not None:
            normalise.layout = self.options.raw_input
        return wrappers.Exported(network, normalise, dtype).eval()

    def _free_dimensions(self) -> dict[int, str]:
        height = 1 if self.options.raw_input == 'NHWC' else 2
        free = {} if self.batch else {0: 'batch'}
        return {**free, height: 'height', height + 1: 'width'} if self.dynamic else free

    def _trace(self, dtype: torch.dtype | None = None) -> torch.export.ExportedProgram:
        """Trace the network, for images of any size and number as far as it goes; see ``dynamic`` and ``batch``."""
        if dtype in self.traced:
            return self.traced[dtype]
        is_cvt = isinstance(self.model.backbone, CvT)  # others may take PyTorch's tracer hours
        attempts = [(True, self.batch)] if self.dynamic or self.dynamic is None and is_cvt else []
        if not self.dynamic:
            attempts += dict.fromkeys([(False, self.batch), (False, 1)])
        if self.dynamic and not is_cvt:
            self.report('Tracing a network other than CvT for images of any size may take very long; --size traces it '
                        'for one size.')
        for self.dynamic, self.batch in attempts:
            size = self.options.size
            if self.dynamic:
                size = tuple(max(side, TRACED_SIDE) for side in size)
            images = self.normalise(random_images(size, self.batch or 2, channels=self.channels))
            try:
                self.traced[dtype] = formats.trace(self._program(dtype), file_input(images, self.about),
                                                   self._free_dimensions())
                return self.traced[dtype]
            except Exception as error:
                failure, reason = error, ' '.join(str(error).split())[:200]
            self.report(f'The network cannot be exported for images of any {"size" if self.dynamic else "number"}: '
                        f'{reason}')
        hint = ' Leave --dynamic out.' if self.dynamic else (
            ' Or export its backbone: --part backbone.' if self.options.part == 'model' else '')
        raise UserError(f'this network cannot be exported: {reason}.{hint}') from failure

    @cached_property
    def _onnx(self) -> Any:
        """Return the float32 ONNX model, from which every .onnx and .xml file is made."""
        opset = getattr(self.network, 'opset', formats.OPSET)
        program = self._trace()
        return formats.to_onnx(program, self.names, self._free_dimensions(), self.layers, opset,
                               operators.translations(opset))

    def _write(self, path: Path, precision: str) -> None:
        if path.suffix == '.pt2':
            if isinstance(self.network, detectors.Detector) and precision != 'fp32':
                raise UserError(f'--precision {precision}: of a whole detector a .pt2 file is in fp32 only, because '
                                'boxes need it; an .xml file can be in bf16.')
            formats.save_pt2(self._trace(DTYPES.get(precision)), path, self.metadata(precision))
            return
        model = formats.to_openvino(self._onnx) if path.suffix == '.xml' else copy.deepcopy(self._onnx)
        if precision == 'int8':
            if not self.images:
                raise UserError('int8 takes its ranges from images, and there are none: give --calibrate 1 or more.')
            size = self.options.size
            inputs = [file_input(image if self.dynamic else self._resize(image, size), self.about)
                      for image in self.images]
            model = int8.quantize(model, inputs, self.layers.keys() - self.keep)
            self.report(f'  {len(int8.int8_layers(model, self.layers))} of {len(self.layers)} layers in int8')
        (formats.save_openvino if path.suffix == '.xml' else formats.save_onnx)(model, path, self.metadata(precision))

    def check(self, path: Path, precision: str) -> bool:
        """Return whether a file's outputs equal the model's within the tolerance."""
        return check(open_exported(path).run_normalised, self.reference, self.examples(), precision, self.report)

    def export(self, path: Path, precision: str = 'fp32') -> bool:
        """Write a file and check it.

        Args:
            path: file to write; its suffix chooses the format. Above the tolerance the file is kept as
                ``<stem>.above_tolerance<suffix>`` instead.
            precision: one of ``PRECISIONS``.

        Returns:
            Whether the file is within the tolerance, and so at ``path``.

        Raises:
            UserError: see :func:`formats.check_format`; this format cannot hold this model.
        """
        formats.check_format(path, precision)
        memory.check_attention(self.model.backbone, self.options.size, path.suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=path.stem, dir=path.parent) as folder:
            unchecked = Path(folder, path.name)
            self._write(unchecked, precision)
            self.report(f'{path.name} ({self.options.part}, {precision}) beside PyTorch in float32:')
            good = self.check(unchecked, precision)
            for written, final in zip(parts(unchecked), parts(path if good else above_tolerance(path))):
                written.replace(final)
        return good


def parts(path: Path) -> list[Path]:
    """Return the files that an exported one consists of: OpenVINO's weights are beside its .xml."""
    return [path.with_suffix('.bin'), path] if path.suffix == '.xml' else [path]


def above_tolerance(path: Path) -> Path:
    """Return the name of a file that differs from PyTorch by more than its precision explains."""
    return path.with_name(f'{path.stem}.above_tolerance{path.suffix}')
