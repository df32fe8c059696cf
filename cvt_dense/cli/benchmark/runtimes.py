"""Columns that run an exported file: this CvT in OpenVINO or ONNX Runtime, on the CPU."""
import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ...deploy.check import random_images
from ...deploy.runtime import open_exported

# Suffix and precision of the file by name; None: the precision of --amp.
RUNTIMES = {'openvino': ('.xml', None), 'openvino-bf16': ('.xml', 'bf16'), 'openvino-int8': ('.xml', 'int8'),
            'onnxruntime': ('.onnx', 'fp32'), 'onnxruntime-int8': ('.onnx', 'int8')}
CALIBRATION = 2  # random images: the time of int8 does not depend on them


class _Model(nn.Module):
    """A backbone as a part of a model, which is what the exporter takes."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone, self.data_preprocessor = backbone, nn.Identity()


def runtime_of(variants: list[str]) -> str | None:
    """Return the runtime among a column's variants, or None."""
    return next((variant for variant in variants if variant in RUNTIMES), None)


def export_column(runtime: str, backbone: nn.Module, args: argparse.Namespace, size: tuple[int, int],
                  folder: Path) -> Path:
    """Export the file of a column; its differences from PyTorch go to stderr.

    Args:
        runtime: a key of :data:`RUNTIMES`.
        backbone: backbone to export.
        args: command line, for the precision.
        size: (H, W) of the image in pixels.
        folder: where to write the file.

    Raises:
        UserError: the file cannot be made, or differs by more than its precision explains.
    """
    from ...deploy.export import Exporter
    from ...errors import UserError
    suffix, precision = RUNTIMES[runtime]
    precision = precision or dict(none='fp32').get(args.amp, args.amp)
    images = [random_images(size, seed=i).float() / 255 for i in range(CALIBRATION if precision == 'int8' else 0)]
    exporter = Exporter(
        _Model(backbone), size, dict(classes=None, config=args.model, config_hash=''), part='backbone', images=images,
        report=partial(print, file=sys.stderr))
    file = folder / f'{runtime}_{size[0]}x{size[1]}{suffix}'
    if not exporter.export(file, precision):
        raise UserError(f'{runtime}: the file differs from PyTorch by more than {precision} explains; see above.')
    return file


def open_column(file: Path, args: argparse.Namespace, size: tuple[int, int]) -> Callable[[], object]:
    """Return a function that runs one step of an exported column.

    Args:
        file: result of :func:`export_column`.
        args: command line, for the batch.
        size: (H, W) of the image in pixels.
    """
    return partial(open_exported(file), torch.rand(args.batch, 3, *size))
