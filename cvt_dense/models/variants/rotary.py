"""Relative positions as a rotation of queries and keys."""
from typing import Any

import torch
from timm.layers.pos_embed_sincos import apply_rot_embed_cat, get_mixed_freqs
from torch import Tensor, nn

from ...registry import MODELS
from ..attention import RelativePositions, Shape


@MODELS.register_module()
class RotaryPositions(RelativePositions):
    """Rotary embedding in two dimensions with learned frequencies (RoPE-Mixed, arXiv 2403.13298), by timm's functions.

    Rotates queries and keys by angles that are linear in their places, so that scores depend on distances, at the cost
    of one pass over q and k: for maps of any size. Frequencies start at 0, which rotates nothing, so that published
    weights keep their function.

    Args:
        kwargs: arguments of :class:`RelativePositions`; ``head_dims`` must be even, because pairs of channels rotate.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.freqs = nn.Parameter(torch.zeros(2, self.num_heads, self.head_dims // 2))

    def rotate(self, q: Tensor, k: Tensor, hw_shape: Shape) -> tuple[Tensor, Tensor]:
        hw_kv = tuple((side + self.stride - 1) // self.stride for side in hw_shape)
        return self._rotate(q, hw_shape, 1), self._rotate(k, hw_kv, self.stride)

    def _rotate(self, x: Tensor, hw_shape: Shape, stride: int) -> Tensor:
        y, x_ = torch.meshgrid(*(torch.arange(side, device=x.device) * stride for side in hw_shape), indexing='ij')
        embedding = get_mixed_freqs(self.freqs, x_.flatten(), y.flatten())  # (heads, H * W, 2 * head_dims)
        cls_token, tokens = x.split([x.shape[1] - y.numel(), y.numel()], dim=1)
        heads = tokens.unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        rotated = apply_rot_embed_cat(heads, embedding).to(x.dtype).transpose(1, 2).flatten(2)
        return torch.cat((cls_token, rotated), dim=1) if cls_token.shape[1] else rotated
