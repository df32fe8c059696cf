"""Softmax attention for inference in bfloat16 on CPUs, computed by whichever of two ways is faster on this CPU."""
import torch
from torch import Tensor

from ..models.attention import softmax_attention
from .linear import is_faster

BLOCK = 2**20  # attention weights that are computed at a time: 2 MB, which fit into a core's cache


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


class InferenceAttention:
    """Softmax attention that chooses between two ways to compute it by timing them on the first input in bfloat16.

    PyTorch's kernel multiplies matrices of bfloat16 as slowly as those of float32 on CPUs without AMX. The other way is
    :func:`attend_in_blocks`. In other dtypes, with gradients, on other devices and while compiling, tracing or
    exporting it is PyTorch's kernel, which is faster in float32.
    """

    def __init__(self) -> None:
        self.in_blocks: bool | None = None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, num_heads: int, scale: float, dropout: float = 0.) -> Tensor:
        """Compute attention.

        Args:
            q, k, v, num_heads, scale, dropout: as in :func:`~cvt_dense.models.attention.softmax_attention`.

        Returns:
            The shape of ``q``.
        """
        if (q.dtype != torch.bfloat16 or q.device.type != 'cpu' or dropout or torch.compiler.is_compiling()
                or torch.jit.is_tracing() or torch.is_grad_enabled() and q.requires_grad):
            return softmax_attention(q, k, v, num_heads, scale, dropout)
        if self.in_blocks is None:
            self.in_blocks = is_faster(lambda: attend_in_blocks(q, k, v, num_heads, scale),
                                       lambda: softmax_attention(q, k, v, num_heads, scale))
        return (attend_in_blocks if self.in_blocks else softmax_attention)(q, k, v, num_heads, scale)
