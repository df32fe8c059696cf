"""Linear layers for inference on CPUs, each computed by the library that is faster on this CPU."""
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def pack_weight(weight: Tensor, rows: int) -> Tensor | None:
    """Return ``weight`` (out, in) in the layout that oneDNN prefers, or None where PyTorch has no such operator.

    This function and :func:`packed_linear` alone call PyTorch's ``torch.ops.mkldnn`` operators, which its compiler uses
    for frozen weights and which are not part of its public API (read in torch 2.13).

    Args:
        weight: float32 or bfloat16, on the CPU.
        rows: number of rows (tokens) that the layer usually gets.
    """
    try:
        return torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)
    except (AttributeError, RuntimeError, NotImplementedError):  # another PyTorch, or one without oneDNN
        return None


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None, silu: bool) -> Tensor:
    """Compute a linear layer whose weight oneDNN has packed.

    Args:
        x: (..., in_features).
        packed: result of :func:`pack_weight`.
        bias: (out_features, ) or None.
        silu: whether SiLU follows.

    Returns:
        (..., out_features).
    """
    return torch.ops.mkldnn._linear_pointwise(x, packed, bias, 'swish' if silu else 'none', [], '')


class InferenceLinear(nn.Linear):
    """A linear layer, optionally followed by SiLU, that chooses between two ways to compute it by timing them.

    PyTorch computes a linear layer in float32 with MKL, which reaches half of oneDNN's speed on some AMD CPUs, and
    packs the weight again in each call in bfloat16. The other way is oneDNN with a weight that is packed once. The
    first input of each dtype decides; layers of equal sizes share the decision. Under ``torch.compile``, while tracing
    or exporting, with gradients, in other dtypes and on other devices it is PyTorch's linear layer.

    Args:
        linear: the layer, whose parameters are shared.
        choices: the decisions by kind of layer, shared by the layers of a network.
        silu: whether SiLU follows.
    """

    def __init__(self, linear: nn.Linear, choices: dict[tuple, bool], silu: bool = False):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.choices, self.silu = choices, silu
        self.packed: dict[torch.dtype, tuple[Tensor, Tensor | None]] = {}  # weight and bias

    def __getstate__(self) -> dict:
        return {**self.__dict__, 'packed': {}}  # packed tensors can be neither copied nor saved

    def extra_repr(self) -> str:
        return super().extra_repr() + (', silu=True' if self.silu else '')

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        if (x.device.type != 'cpu' or torch.compiler.is_compiling() or torch.jit.is_tracing()
                or torch.is_grad_enabled() and (x.requires_grad or self.weight.requires_grad)):
            return self.plain(x)
        dtype = torch.get_autocast_dtype('cpu') if torch.is_autocast_enabled('cpu') else self.weight.dtype
        if dtype not in (torch.float32, torch.bfloat16):
            return self.plain(x)
        kind = (self.in_features, self.out_features, self.silu, dtype)
        if kind in self.choices and not self.choices[kind]:
            return self.plain(x)
        x = x.to(dtype)
        if dtype not in self.packed:
            weight = pack_weight(self.weight.to(dtype), x.numel() // self.in_features)
            if weight is None:
                self.choices[kind] = False
                return self.plain(x)
            self.packed[dtype] = weight, None if self.bias is None else self.bias.detach().to(dtype)
        weight, bias = self.packed[dtype]
        if kind not in self.choices:
            self.choices[kind] = is_faster(lambda: packed_linear(x, weight, bias, self.silu), lambda: self.plain(x))
        return packed_linear(x, weight, bias, self.silu)

    def plain(self, x: Tensor) -> Tensor:
        """Compute the layer as PyTorch does."""
        x = F.linear(x, self.weight, self.bias)
        return F.silu(x, inplace=not x.requires_grad) if self.silu else x


def is_faster(candidate: Callable[[], Tensor], baseline: Callable[[], Tensor], rounds: int = 3) -> bool:
    """Return whether the fastest call of ``candidate`` takes less time than the fastest call of ``baseline``.

    Args:
        candidate, baseline: functions to time, in turns.
        rounds: timed calls of each, after one that warms up.
    """
    best = [float('inf'), float('inf')]
    for _ in range(rounds + 1):  # the first round, which warms up, cannot be the fastest
        for i, function in enumerate((candidate, baseline)):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best[0] < best[1]
