"""A network compiled by inductor with its weights as constants, laid out for the matrix kernels beforehand."""
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn


@cache  # one function for all networks: a copy of a compiled network so compiles for its own weights
def _compiled(any_size: bool) -> Callable[[nn.Module, Tensor], Any]:

    def features(network: nn.Module, x: Tensor) -> Any:
        return network.features(x)

    return torch.compile(features, dynamic=any_size)


def run_frozen(network: nn.Module, x: Tensor, any_size: bool) -> Any:
    """``network.features(x)``, compiled at the first call; without gradients, which frozen weights do not have.

    Args:
        network: in eval mode; its weights may not change any more.
        x: (B, C, H, W).
        any_size: whether what is compiled once for a single image will do for other H and W. Of batches the compiler
            (torch 2.13) cannot prove the order of unknown strides: they are compiled for each shape.
    """
    import torch._inductor.config as inductor  # seconds, where nothing is compiled for nothing
    import torch.fx.experimental._config as shapes
    # Without duck shapes: a first image that happens to be square would otherwise do for square ones alone.
    with torch.no_grad(), inductor.patch(freezing=True), shapes.patch(use_duck_shape=False):
        return _compiled(any_size and len(x) == 1)(network, x)
