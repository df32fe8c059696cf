"""timm's Muon, fast on CPUs."""
from collections.abc import Callable, Sequence
from typing import Any

import timm.optim
import torch
from torch.overrides import TorchFunctionMode


class Muon(timm.optim.Muon):
    """Orthogonalize updates in float32; arguments and state are those of timm's ``Muon``.

    timm converts each update to bfloat16 for this, and has no argument for another type. A CPU without instructions for
    bfloat16 takes 12 times as long for its matrix products as for those of float32.
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters once, and return the closure's value."""
        with _Float32():
            return super().step(closure)


class _Float32(TorchFunctionMode):
    """Convert tensors of this thread to float32 where a function is called with ``dtype=torch.bfloat16``."""

    def __torch_function__(self, function: Callable[..., Any], types: Sequence[type], args: tuple = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        if kwargs and kwargs.get('dtype') is torch.bfloat16:
            kwargs = dict(kwargs, dtype=torch.float32)
        return function(*args, **(kwargs or {}))
