"""timm's Muon, fast on CPUs."""
from collections.abc import Callable
from functools import partial

import timm.optim
import torch
from timm.optim import muon as implementation

orthogonalize = implementation.zeropower_via_newtonschulz


class Muon(timm.optim.Muon):
    """Orthogonalize updates in float32; arguments and state are those of timm's ``Muon``.

    timm orthogonalizes each update in bfloat16, and has no argument for another type. A CPU without instructions for
    bfloat16 takes 12 times as long for its matrix products as for those of float32.
    """

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update the parameters once, and return the closure's value."""
        implementation.zeropower_via_newtonschulz = partial(orthogonalize, dtype=torch.float32)
        try:
            return super().step(closure)
        finally:
            implementation.zeropower_via_newtonschulz = orthogonalize
