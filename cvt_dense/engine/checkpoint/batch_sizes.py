"""Save and restore the size of the next batch, which MMDetection's ``BatchSyncRandomResize`` draws in advance."""
from typing import Any

from mmengine.runner import Runner
from torch import nn


def _resizers(runner: Runner) -> list[nn.Module]:
    return [module for module in runner.model.modules() if hasattr(module, '_input_size')]


def next_sizes(runner: Runner) -> list[Any]:
    """Return (height, width) in pixels for each of the model's resizers, None before a first batch."""
    return [module._input_size for module in _resizers(runner)]


def restore_sizes(runner: Runner, sizes: list[Any]) -> None:
    """Set what :func:`next_sizes` returned when the checkpoint was saved."""
    for module, size in zip(_resizers(runner), sizes):
        module._input_size = size
