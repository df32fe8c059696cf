"""Export a model to files and compare them with PyTorch."""
import copy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import UserError, listed
from ..models.cvt import CvT
from ..models.task import task_of
from . import formats, int8, networks, operators
from .check import compare, random_images
from .runtime import as_json, file_input, open_exported, openvino_core, takes_bgr

TRACED_SIDE = 320  # free sizes are traced at that many pixels or more: a map of one cell would be a constant size


class Exporter:
    """Writes files of one model, and compares each with PyTorch.

    Args:
        model: classifier, segmentor or detector with its weights; not changed.
        size: height and width of the image, in pixels; with ``dynamic`` an example.
        about: ``classes``, ``config`` and ``config_hash`` of the metadata, and what :func:`inputs.describe` returns.
        dynamic: height and width are free; None: they are if the network can be traced so.
        part: 'model' or 'backbone'.
        raw_input: the file takes uint8 images and normalises them.
        keep: names of layers that stay in float under int8, or of modules that hold such.
        images: what the network gets of training images, float32 (1, C, H, W), which int8 is calibrated with.
        tests: the same for test images, on which files are compared beside random ones.
        report: takes a line for the user.

    Raises:
        UserError: the model or a part of it cannot be exported so, or ``keep`` names a layer that does not exist.
    """

    def __init__(self, model: nn.Module, size: tuple[int, int], about: dict[str, Any], *, dynamic: bool | None = False,
                 part: str = 'model', raw_input: bool = False, keep: Sequence[str] = (), images: Sequence[Tensor] = (),
                 tests: Sequence[Tensor] = (), report: Callable[[str], None] = print):
        self.size, self.dynamic, self.images, self.tests, self.report = size, dynamic, images, tests, report
        self.reference = networks.Network(model.eval(), part)  # as it was trained
        task = task_of(model)
        mean, std = (getattr(model.data_preprocessor, name, None) for name in ('mean', 'std'))
        self.channels = getattr(model.backbone, 'in_channels', 3)
        if raw_input and (self.channels != 3 or mean is None):
            raise UserError('--raw-input: the file would normalise RGB images as model.data_preprocessor does, which '
                            'has no mean here or another number of channels: leave the flag out.')
        detector = part == 'model' and task == 'detection'
        self.batch = 1 if detector else None
        self.about = dict(
            format_version=1, part=part, task=task, raw_input=raw_input, layout='NHWC' if raw_input else 'NCHW',
            mean=[0.] * self.channels if mean is None else mean.flatten().tolist(),
            std=[1.] * self.channels if std is None else std.flatten().tolist(), bgr_to_rgb=False,
            scale=None, crop_pct=None, crop_mode=None, interpolation=None, outputs=self.reference.names,
            score_thr=0.3 if detector else None, test_cfg=as_json(model.test_cfg) if detector else None,
            mask_thr=float(model.roi_head.test_cfg.mask_thr_binary) if 'masks' in self.reference.names else None)
        self.about.update(about)
        self.normalise = networks.normaliser(self.about['mean'], self.about['std'],
                                             self.channels == 3 and takes_bgr(self.about))
        self.network = networks.Network(networks.make_exportable(model, part), part,
                                        self.normalise if raw_input else None)
        self.layers = int8.layers(self.network.model)
        for name in keep:
            if not any(f'{layer}.'.startswith(f'{name}.') for layer in self.layers):
                raise UserError(f'--keep {name}: there is no such layer, nor a module that holds any; layers are '
                                f'{listed(sorted(self.layers))}.')
        kept = tuple(f'{name}.' for name in (*keep, *int8.KEPT))
        self.quantized = {layer for layer in self.layers if not f'{layer}.'.startswith(kept)}

    def metadata(self, precision: str) -> dict[str, Any]:
        """Return a file's metadata, see ``docs/reference/exported_files.md``."""
        return dict(self.about, precision=precision, inference_precision=formats.INFERENCE_PRECISION[precision],
                    input_size=None if self.dynamic else list(self.size), dynamic=self.dynamic, batch=self.batch)

    def _fit(self, image: Tensor) -> Tensor:
        """Cut or pad what the network gets of an image to the file's size, and round it to pixels if it takes such."""
        if self.dynamic or image.shape[2:] == torch.Size(self.size):
            return image
        image = F.pad(image, (0, self.size[1] - image.shape[3], 0, self.size[0] - image.shape[2]))
        return self.normalise(file_input(image, dict(self.about, layout='NCHW'))) if self.about['raw_input'] else image

    def examples(self) -> list[Tensor]:
        """Return batches to compare on.

        They are two test images, random ones, of another size if the file takes such, and for a detector the first of
        three plain images in which it detects nothing.
        """
        size = (self.size[0] * 3 // 4 + 1, self.size[1] + 6) if self.dynamic else self.size
        others = random_images(size, self.batch or 2, channels=self.channels)
        plain = (self.normalise(torch.full_like(others, level)) for level in (0, 128, 255))
        empty = next(([image] for image in plain if not len(self.reference.by_name(image)['boxes'])), []) if (
            'boxes' in self.reference.names) else []
        return [*map(self._fit, self.tests[:2]), self.normalise(others), *empty]

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        """Report a step as it begins, because some take minutes, and its time."""
        self.report(f'{name} ...')
        sys.stdout.flush()
        begin = time.monotonic()
        yield
        self.report(f'  took {time.monotonic() - begin:.1f} s')

    # -- writing ---------------------------------------------------------------------------------------------

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """Return the traced network, for images of any size and number as far as it goes."""
        attempts = [(True, self.batch)] if self.dynamic else [(False, self.batch), (False, 1)]
        if self.dynamic is None and isinstance(self.network.model.backbone, CvT):  # others may take the tracer hours
            attempts.insert(0, (True, self.batch))
        height = 1 if self.about['raw_input'] else 2
        for self.dynamic, self.batch in dict.fromkeys(attempts):
            free = [*([] if self.batch else [0]), *([height, height + 1] if self.dynamic else [])]
            size = [max(side, TRACED_SIDE) for side in self.size] if self.dynamic else self.size
            images = self.normalise(random_images(size, self.batch or 2, channels=self.channels))
            try:
                with self._step(f'Tracing the network for images of {"any size" if self.dynamic else "one size"}'):
                    return formats.trace(self.network.eval(), file_input(images, self.about), free)
            except Exception as error:  # whatever the tracer raises
                failure = error
            self.report(f'The network cannot be exported for images of any {"size" if self.dynamic else "number"}: '
                        f'{" ".join(str(failure).split())[:200]}')
        raise UserError('This network cannot be exported for these sizes. Give one (--size, without --dynamic), or '
                        'export the backbone alone (--part backbone).') from failure

    @cached_property
    def onnx(self) -> Any:
        """Return the float32 ONNX model, from which every .onnx and .xml file is made."""
        program = self.program
        opset = formats.REGION_OPSET if hasattr(self.network.model, 'roi_head') else formats.OPSET
        with self._step('Converting it to ONNX'):
            return formats.to_onnx(program, self.network.names, self.layers, opset, operators.translations(opset))

    def _convert(self, suffix: str, precision: str) -> Any:
        """Return the model of a format, in int8 if that is the precision."""
        if suffix == '.pt2':
            return self.program
        model = copy.deepcopy(self.onnx)
        if suffix == '.xml':
            model = openvino_core().read_model(model.SerializeToString())
        if precision != 'int8':
            return model
        if not self.images:
            raise UserError('int8 takes its ranges from training images, and there are none.')
        with self._step(f'Quantizing it with {len(self.images)} images'):
            return int8.quantize(model, [file_input(self._fit(image), self.about) for image in self.images],
                                 self.quantized)

    def export(self, path: Path, precision: str = 'fp32') -> bool:
        """Write a file and check it.

        Args:
            path: file to write; its suffix chooses the format. Above the tolerance the file is kept as
                ``<stem>.above_tolerance<suffix>`` instead.
            precision: 'fp32', 'bf16' or 'int8'.

        Returns:
            Whether the file is within the tolerance, and so at ``path``.

        Raises:
            UserError: see :func:`formats.check_format`; the model cannot be exported.
        """
        formats.check_format(path, precision)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=path.stem, dir=path.parent) as folder:
            unchecked = Path(folder, path.name)
            formats.save(self._convert(path.suffix, precision), unchecked, self.metadata(precision))
            with self._step(f'Comparing {path.name} ({self.about["part"]}, {precision}) with PyTorch in float32'):
                good = compare(open_exported(unchecked).run_normalised, self.reference.by_name, self.examples(),
                               precision, self.report)
            name = path if good else above_tolerance(path)
            for written, final in zip(parts(unchecked), parts(name)):
                written.replace(final)
        return good


def parts(path: Path) -> list[Path]:
    """Return the files that an exported one consists of: OpenVINO's weights are beside its .xml."""
    return [path.with_suffix('.bin'), path] if path.suffix == '.xml' else [path]


def above_tolerance(path: Path) -> Path:
    """Return the name of a file that differs from PyTorch by more than its precision explains."""
    return path.with_name(f'{path.stem}.above_tolerance{path.suffix}')
