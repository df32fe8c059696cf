"""Trace the prediction methods of mmdet and mmseg, whose graph must not depend on the values in tensors.

A tracer cannot record results whose length depends on values, such as the boxes above a threshold. While a network is
traced, :func:`traceable` replaces the function of mmdet that returns such results by one of a fixed maximal length, and
mm's data containers, which copy and compare sizes, by plain ones. This is the one place of this package that replaces
names of other packages. Sizes of maps stay numbers where mmdet puts them into tensors.
"""
import contextlib
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from . import operators

UNLIMITED = 2**31 - 1


class Results(SimpleNamespace):
    """Stands in for ``InstanceData``, which compares lengths, and for data samples, which copy their entries."""

    def __getitem__(self, index: Any) -> 'Results':
        return Results(**{name: value[index] for name, value in vars(self).items()})

    def __contains__(self, name: str) -> bool:
        return False  # mmdet asks so for annotations and for predictions whose boxes are no tensors

    def pop(self, name: str) -> Tensor:
        """Remove an entry and return it."""
        return vars(self).pop(name)


def best_scores(scores: Tensor, score_thr: float, topk: int,
                results: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
    """Compute mmdet's ``filter_scores_and_topk``, but give scores below the threshold -1 instead of removing them."""
    number, classes = scores.shape
    scores = scores.reshape(-1)
    scores, chosen = scores.topk(torch.sym_min(topk, number * classes) if topk > 0 else number * classes)
    scores, places = scores.where(scores > score_thr, -1.), chosen // classes
    results = {name: value[places] for name, value in (results or {}).items()}
    return scores, chosen % classes, places, results


def suppress(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float = 0., max_num: int = -1,
             min_size: float | None = None) -> tuple[Tensor, Tensor]:
    """Compute mmcv's ``nms``, without boxes whose sides are not larger than ``min_size``: boxes (N, 5), indices."""
    if min_size is not None:
        scores = scores.where((boxes[:, 2:] - boxes[:, :2] > min_size).all(dim=1), -1.)
    keep = operators.nms(boxes, scores, iou_threshold, score_threshold, max_num if max_num > 0 else UNLIMITED)
    return torch.cat([boxes[keep], scores[keep, None]], dim=1), keep


# mmdet's and mmseg's names in modules of a network's classes, and what stands in for them during an export.
REPLACED = dict(InstanceData=Results, filter_scores_and_topk=best_scores, SegDataSample=SimpleNamespace)


def to_tensor(values: Any) -> Tensor:
    """Return nested sequences of integers, some of which may be symbols of the tracer, as a tensor."""
    values = np.array(values, dtype=object)
    return torch.stack([torch.scalar_tensor(value, dtype=torch.long) for value in values.flat]).view(values.shape)


class Sizes:
    """Numbers in an array that has the methods of a tensor that mmdet calls on sizes of maps."""

    def __init__(self, values: Any):
        self.values = np.array(values, dtype=object)

    def __getitem__(self, index: Any) -> Any:
        values = self.values[index]
        return Sizes(values) if isinstance(values, np.ndarray) else values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __mul__(self, other: 'Sizes') -> 'Sizes':
        return Sizes(self.values * other.values)

    def to(self, *_: Any) -> 'Sizes':
        """Return the sizes."""
        return self

    def view(self, *shape: int) -> 'Sizes':
        """Return the sizes in another shape."""
        return Sizes(self.values.reshape(shape))

    def sum(self) -> Any:
        """Return the sum of all."""
        return self.values.sum()

    def prod(self, dim: int) -> Tensor:
        """Return products along a dimension."""
        return to_tensor(self.values.prod(dim))

    def unsqueeze(self, dim: int) -> Tensor:
        """Return a tensor with another dimension."""
        return to_tensor(self.values).unsqueeze(dim)

    def new_zeros(self, shape: Sequence[int]) -> Tensor:
        """Return zeros."""
        return torch.zeros(shape, dtype=torch.long)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is torch.cat:
            return Sizes(np.concatenate([sizes.values for sizes in args[0]]))
        return func([to_tensor(sizes.values) for sizes in args[0]], *args[1:], **(kwargs or {}))


class KeepSizes(TorchFunctionMode):
    """Keep sizes of maps as numbers, which PyTorch's own functions would fix to those of the traced image."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        if func is torch._shape_as_tensor:
            return Sizes(list(args[0].shape))
        if func is Tensor.new_tensor and isinstance(args[1], (list, tuple)) and any(
                isinstance(value, torch.SymInt) for value in args[1]):
            return to_tensor(args[1]).to(args[0])
        if func is torch.linspace and isinstance(args[2], torch.SymInt):  # mmdet's grids of places, one apart
            return torch.arange(args[2], **kwargs) + args[0]
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def traceable(network: nn.Module) -> Iterator[None]:
    """Put what is in :data:`REPLACED` into the mm modules that define the network's classes, while it is traced.

    Whatever heads of one stage and Mask2Former import under these names is replaced, because mmdet has no argument for
    it. ``networks.py`` has its own stages of Faster R-CNN and its relatives instead.
    """
    names = {cls.__module__ for part in network.modules() for cls in type(part).__mro__}
    modules = [sys.modules[name] for name in names if name.startswith(('mmdet.', 'mmseg.'))]
    before = [(module, name, vars(module)[name]) for module in modules for name in REPLACED if name in vars(module)]
    try:
        for module, name, _ in before:
            setattr(module, name, REPLACED[name])
        with KeepSizes():
            yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
