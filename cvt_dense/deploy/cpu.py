"""Layers for inference on CPUs, each computed by whichever of two implementations is faster on this CPU."""
import time
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median

import torch
import torch.nn.functional as F
from timm.layers import Mlp
from torch import Tensor, nn

from ..models.attention import ConvAttention, SoftmaxAttention
from ..models.cvt import CvT

BLOCK = 2**20  # attention weights that attend_in_blocks computes at a time: 2 MB, which fit into a core's cache
PACKED = {torch.float32, torch.bfloat16}  # dtypes of weights that oneDNN packs
Choices = dict[tuple, bool]  # whether a kind of layer uses oneDNN or blocks, or PyTorch's own kernels


def use_cpu_kernels(model: nn.Module) -> None:
    """Make inference of a model on a CPU faster, in place, with the same output to rounding.

    Every linear layer chooses between PyTorch's own product and oneDNN with a packed weight, and CvT's attention
    between PyTorch's kernel and matrix products in blocks, which pays in bfloat16 only. The first image decides by
    timing both, once for each kind of layer. Convolutions of necks and heads get weights in the memory format
    ``channels_last``, unless mmcv has compiled operators, some of which read such maps wrongly.

    Call it last, after :func:`.fuse.fuse`. Gradients, other devices, other dtypes, compilers and exporters use
    PyTorch's own implementations. A weight that changes is packed again, unless it is written through ``.data`` or by a
    fused optimizer, which PyTorch does not count as changes.

    Args:
        model: any model, such as a CvT, a Swin, or a whole detector; on the CPU.
    """
    choices: Choices = {}
    for module in list(model.modules()):
        if isinstance(module, ConvAttention):
            module.attention = InferenceAttention(module.attention, choices)
        if isinstance(module, Mlp) and isinstance(module.act, nn.SiLU) and is_plain(module.fc1):
            module.fc1, module.act = InferenceLinear(module.fc1, choices, silu=True), nn.Identity()
        for name, child in list(module.named_children()):
            if is_plain(child):
                setattr(module, name, InferenceLinear(child, choices))
    operators = find_spec('mmcv._ext')
    if operators is None or operators.origin.endswith('.py'):  # none, or those of cvt_dense.ops
        inside = {module for backbone in model.modules() if isinstance(backbone, CvT) for module in backbone.modules()}
        for module in model.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) and module not in inside:
                module.to(memory_format=torch.channels_last)


def is_plain(module: nn.Module) -> bool:
    """Return whether a module is a linear layer and nothing else computes or changes its weight."""
    return type(module) is nn.Linear and not module._forward_pre_hooks and not module._forward_hooks


def choose(choices: Choices, kind: tuple, candidate: Callable[[], Tensor], baseline: Callable[[], Tensor]) -> bool:
    """Return whether ``candidate`` is used for a kind of layer, and time both functions the first time."""
    if kind not in choices:
        choices[kind] = is_faster(candidate, baseline)
    return choices[kind]


def is_faster(candidate: Callable[[], Tensor], baseline: Callable[[], Tensor]) -> bool:
    """Return whether ``candidate`` takes less time than ``baseline``: the median of seven calls that alternate."""
    times: tuple[list[float], list[float]] = [], []
    for _ in range(8):  # the first warms up
        for function, taken in zip((candidate, baseline), times):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return median(times[0][1:]) < median(times[1][1:])


def _only_pytorch(*tensors: Tensor) -> bool:
    """Return whether tensors are on another device, need gradients, or are compiled, traced or exported."""
    return (tensors[0].device.type != 'cpu' or torch.compiler.is_compiling() or torch.jit.is_tracing()
            or torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))


# -- linear layers ---------------------------------------------------------------------------------------


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
    """A linear layer, optionally followed by SiLU, that is computed by PyTorch or by oneDNN with a packed weight.

    PyTorch computes a linear layer in float32 with MKL, which reaches half of oneDNN's speed on some AMD CPUs, and
    packs the weight again in each call in bfloat16.

    Args:
        linear: the layer, whose parameters are shared.
        choices: the decisions by kind of layer, shared by the layers of a network.
        silu: whether SiLU follows.
    """

    def __init__(self, linear: nn.Linear, choices: Choices, silu: bool = False):
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight, self.bias = linear.weight, linear.bias
        self.choices, self.silu = choices, silu
        # By dtype the weight, kept so that no other tensor gets its address, its version, and what was packed from it.
        self.packed: dict[torch.dtype, tuple[Tensor, int, Tensor | None]] = {}

    def __getstate__(self) -> dict:
        return {**self.__dict__, 'packed': {}}  # packed tensors can be neither copied nor saved

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features)."""
        # The time of no rows says nothing, and PyTorch does not count the changes of inference tensors.
        if _only_pytorch(x, self.weight) or not x.numel() or self.weight.is_inference():
            return self.plain(x)
        autocast = torch.is_autocast_enabled('cpu')
        dtype = torch.get_autocast_dtype('cpu') if autocast else self.weight.dtype
        kind = (self.in_features, self.out_features, self.silu, dtype)
        # PyTorch casts a layer's input under autocast alone.
        if dtype not in PACKED or x.dtype not in (PACKED if autocast else {dtype}) or self.choices.get(kind) is False:
            return self.plain(x)
        x, packed = x.to(dtype), self._pack(dtype, x.numel() // self.in_features)
        bias = None if self.bias is None else self.bias.detach().to(dtype)
        if packed is not None and choose(
                self.choices, kind, lambda: packed_linear(x, packed, bias, self.silu), lambda: self.plain(x)):
            return packed_linear(x, packed, bias, self.silu)
        return self.plain(x)

    def plain(self, x: Tensor) -> Tensor:
        """Compute the layer as PyTorch does."""
        x = F.linear(x, self.weight, self.bias)
        return F.silu(x, inplace=not x.requires_grad) if self.silu else x

    def _pack(self, dtype: torch.dtype, rows: int) -> Tensor | None:
        weight, (old, version, packed) = self.weight.detach(), self.packed.get(dtype, (None, 0, None))
        if old is None or (old.data_ptr(), version) != (weight.data_ptr(), weight._version):
            packed = pack_weight(weight.to(dtype), rows)
            self.packed[dtype] = weight, weight._version, packed
        return packed


# -- attention -------------------------------------------------------------------------------------------


class InferenceAttention(SoftmaxAttention):
    """Softmax attention by PyTorch's kernel or, in bfloat16 where that is faster, in blocks.

    PyTorch's kernel multiplies matrices of bfloat16 as slowly as those of float32 on CPUs without AMX.

    Args:
        attention: the module that this one replaces.
        choices: the decisions by kind of layer, shared by the layers of a network.
    """

    def __init__(self, attention: SoftmaxAttention, choices: Choices):
        super().__init__(attention.num_heads, attention.scale, attention.dropout)
        self.train(attention.training)
        self.choices = choices

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute the attention of each query to all keys, as :meth:`SoftmaxAttention.forward`."""
        dropped = self.dropout and self.training
        if q.dtype == torch.bfloat16 and bias is None and not dropped and not _only_pytorch(q):
            arguments = q, k, v, self.num_heads, self.scale
            if choose(self.choices, ('attention', self.num_heads, q.shape[2]), lambda: attend_in_blocks(*arguments),
                      lambda: super(InferenceAttention, self).forward(q, k, v)):
                return attend_in_blocks(*arguments)
        return super().forward(q, k, v, bias)


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, num_heads: int, scale: float) -> Tensor:
    """Compute multi-head softmax attention by matrix products of a few heads or queries at a time.

    The products are rounded to the dtype of ``q`` before the softmax, which PyTorch's kernel avoids.

    Args:
        q: (B, Nq, C).
        k, v: (B, Nk, C).
        num_heads: heads, which share the C channels.
        scale: factor of the products of q and k.

    Returns:
        (B, Nq, C).
    """
    q, k, v = (y.unflatten(2, (num_heads, -1)).transpose(1, 2).flatten(0, 1) for y in (q * scale, k, v))
    out, (num_queries, num_keys) = torch.empty_like(q), (q.shape[1], k.shape[1])
    heads = max(1, BLOCK // (num_queries * num_keys))
    rows = max(1, BLOCK // (heads * num_keys))
    for i in range(0, len(q), heads):
        some, keys, values = slice(i, i + heads), k[i:i + heads].transpose(1, 2), v[i:i + heads]
        for j in range(0, num_queries, rows):
            out[some, j:j + rows] = (q[some, j:j + rows] @ keys).softmax(-1) @ values
    return out.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)
