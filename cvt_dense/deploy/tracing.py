"""Trace the prediction methods of mmdet and mmseg, whose graph must not depend on the values in tensors.

A tracer cannot record results whose length depends on values, such as the boxes above a threshold. While a network is
traced, :func:`traceable` replaces the function of mmdet that returns such results by one of a fixed maximal length, and
mmdet's container of results, which compares sizes, by a plain one. This is the one place of this package that replaces
names of other packages.
"""
import contextlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

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


# mmdet's names in modules of a network's classes, and what stands in for them during an export.
REPLACED = dict(InstanceData=Results, filter_scores_and_topk=best_scores)


@contextlib.contextmanager
def traceable(network: nn.Module) -> Iterator[None]:
    """Put what is in :data:`REPLACED` into the modules of mmdet that define the network's classes, while it is traced.

    Whatever heads of one stage import under these names is replaced, because mmdet has no argument for it.
    ``networks.py`` has its own stages of Faster R-CNN and its relatives instead.
    """
    names = {cls.__module__ for part in network.modules() for cls in type(part).__mro__}
    modules = [sys.modules[name] for name in names if name.startswith('mmdet.')]
    before = [(module, name, vars(module)[name]) for module in modules for name in REPLACED if name in vars(module)]
    try:
        for module, name, _ in before:
            setattr(module, name, REPLACED[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
