"""Attention whose cost is linear in the map's area."""
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...registry import MODELS
from ..attention import ConvAttention, RelativePositions, Shape

EPS = 1e-6


@MODELS.register_module()
class LinearAttention(ConvAttention):
    """:class:`ConvAttention` with :class:`FocusedLinearAttention` in place of softmax attention.

    It computes another function than softmax attention, so published weights need fine-tuning. It pays in the first
    stages: ``attn_cfg=[linear, linear, None]``. ``rel_pos_cfg`` may rotate q and k; there are no scores for a bias.

    Args:
        kwargs: arguments of :class:`ConvAttention`.

    Raises:
        ValueError: ``attn_drop_rate`` or positions that bias scores are given; there are no scores.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.check_aligned_keys()
        biased = self.rel_pos is not None and type(self.rel_pos).bias is not RelativePositions.bias
        if self.attn_drop_rate or biased:
            raise ValueError('linear attention has no scores of a query and a key: leave attn_drop_rate and a '
                             'rel_pos_cfg that biases scores out of its stages.')
        self.attention = None
        self.linear_attention = FocusedLinearAttention(self.proj.in_features, self.num_heads)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape) -> Tensor:
        return self.linear_attention(q, k, v, hw_shape, self.kv_shape(hw_shape))


class FocusedLinearAttention(nn.Module):
    """Focused linear attention with a depth-wise convolution on v (FLatten, arXiv 2308.00442).

    ``phi(q) (phi(k)^T v) / (phi(q) sum phi(k)) + DWC(v)`` with ``phi(x) = |x| x^p / |x^p|`` of ``relu(x)``: the sums
    over keys are computed once for all queries, in float32.

    Args:
        embed_dims: channels of the tokens.
        num_heads: attention heads.
        focusing_factor: p.
        kernel_size: kernel size of the convolution, which sees v at the queries' resolution.
    """

    def __init__(self, embed_dims: int, num_heads: int, focusing_factor: int = 3, kernel_size: int = 5):
        super().__init__()
        head_dims = embed_dims // num_heads
        self.num_heads = num_heads
        self.focusing_factor = focusing_factor
        self.temperature = nn.Parameter(torch.zeros(embed_dims))  # the argument of softplus
        self.dwc = nn.Conv2d(head_dims, head_dims, kernel_size, padding=kernel_size // 2, groups=head_dims)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape, hw_kv: Shape) -> Tensor:
        """Compute attention of a map.

        Args:
            q: (B, [1 +] H * W, C).
            k, v: (B, [1 +] H' * W', C).
            hw_shape, hw_kv: (H, W) and (H', W').

        Returns:
            (B, [1 +] H * W, C).
        """
        num_cls = q.shape[1] - hw_shape[0] * hw_shape[1]
        local = self._local(v[:, num_cls:], hw_shape, hw_kv)
        dtype = q.dtype
        # There is no autocast for the meta device, on which networks are counted.
        meta = q.device.type == 'meta'
        with nullcontext() if meta else torch.autocast(q.device.type, enabled=False):
            temperature = F.softplus(self.temperature.float())
            q, k = (self._split(self._focus(x.float() / temperature)) for x in (q, k))
            v = self._split(v.float())
            numerator = q @ (k.transpose(2, 3) @ v)
            denominator = q @ k.sum(dim=2, keepdim=True).transpose(2, 3)
            x = (numerator / (denominator + EPS)).transpose(1, 2).flatten(2).to(dtype)
        return torch.cat((x[:, :num_cls], x[:, num_cls:] + local), dim=1) if num_cls else x + local

    def _focus(self, x: Tensor) -> Tensor:
        x = F.relu(x) + EPS
        powered = x**self.focusing_factor
        return powered * (x.norm(dim=-1, keepdim=True) / powered.norm(dim=-1, keepdim=True))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def _local(self, v: Tensor, hw_shape: Shape, hw_kv: Shape) -> Tensor:
        """Convolve v, with one kernel for all heads, at the queries' resolution: (B, H * W, C)."""
        batch = v.shape[0]
        v = v.unflatten(1, hw_kv).permute(0, 3, 1, 2)
        if hw_kv != hw_shape:
            v = F.interpolate(v, hw_shape, mode='nearest')
        v = self.dwc(v.unflatten(1, (self.num_heads, -1)).flatten(0, 1))
        return v.unflatten(0, (batch, self.num_heads)).flatten(1, 2).flatten(2).transpose(1, 2)
