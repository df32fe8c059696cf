"""The size of the next batch, which MMDetection's ``BatchSyncRandomResize`` draws with the batch before."""
from typing import Any

from mmengine.runner import Runner
from torch import nn


def _resizers(runner: Runner) -> list[nn.Module]:
    return [module for module in runner.model.modules() if hasattr(module, '_input_size')]


def next_sizes(runner: Runner) -> list[Any]:
    """(height, width) in pixels for each of the model's resizers, None before a first batch; equal in all processes."""
    return [module._input_size for module in _resizers(runner)]


def restore_sizes(runner: Runner, sizes: list[Any]) -> None:
    """Takes over what :func:`next_sizes` gave when the checkpoint was saved."""
    for module, size in zip(_resizers(runner), sizes):
        module._input_size = size
