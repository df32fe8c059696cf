"""Mixed precision without a loss scale, on CPUs too."""
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.optim import OptimWrapper
from torch import nn

from ..registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class AutocastOptimWrapper(OptimWrapper):
    """Train in ``torch.autocast`` on CPUs too; MMEngine's ``AmpOptimWrapper`` needs a GPU.

    In bfloat16 gradients need no loss scale. It pays on CPUs with AMX or AVX-512 BF16; others are many times slower.

    Args:
        dtype: 'bfloat16'; float16 needs the loss scale of ``AmpOptimWrapper``.
        kwargs: arguments of ``OptimWrapper``: ``optimizer``, ``clip_grad``, ``accumulative_counts``.

    Raises:
        ValueError: another ``dtype``.
    """

    def __init__(self, dtype: str = 'bfloat16', **kwargs: Any):
        super().__init__(**kwargs)
        if dtype != 'bfloat16':
            raise ValueError(f"AutocastOptimWrapper: dtype={dtype!r}: allowed is 'bfloat16'; float16 needs the loss "
                             'scale of AmpOptimWrapper.')

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), torch.autocast(get_device(), torch.bfloat16):
            yield
