"""Relative positions as a bias of the attention scores."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...registry import MODELS
from ..attention import RelativePositions, Shape

# Scores that are biased at once. More are cut into bands of query rows, recomputed in the backward pass, so that no
# tensor of all queries by all keys is made. Stage 2 at 384x384 (24x24 tokens, 6 heads) has a tenth of it.
MAX_SCORES = 2**22


@MODELS.register_module()
class RelPosBias(RelativePositions):
    """Continuous relative position bias in log coordinates (Swin V2, arXiv 2111.09883, section 3.3).

    ``softmax(scale * q k^T + B)``, where B is an MLP of ``sign(d) * log(1 + |d|)`` of the distances d = (dy, dx), as in
    timm's ``RelPosMlp``; its last layer starts at 0, so that published weights keep their function. The MLP sees each
    distance once.

    On the CPU it prevents the flash kernel in training, which takes no bias with a gradient, and it costs one more pass
    of attention where the map is cut into bands (:data:`MAX_SCORES`): meant for windows and the small maps of late
    stages.

    Args:
        hidden_dims: hidden channels of the MLP.
        kwargs: arguments of :class:`RelativePositions`.
    """

    def __init__(self, hidden_dims: int = 128, **kwargs: Any):
        super().__init__(**kwargs)
        self.fc = nn.Linear(2, hidden_dims)
        self.weight = nn.Parameter(torch.zeros(self.num_heads, hidden_dims))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape, scale: float, dropout: float) -> Tensor:
        h, w = hw_shape
        hk, wk = (-(-side // self.stride) for side in hw_shape)
        q, k, v = (y.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for y in (q, k, v))
        num_cls_q, num_cls_k = q.shape[2] - h * w, k.shape[2] - hk * wk
        table = self._table(h, w, hk, wk)

        def attend(q: Tensor, table: Tensor, first: int) -> Tensor:
            bias = self._bias(table, first, q.shape[2] // w, w, hk, wk)
            bias = F.pad(bias, (num_cls_k, 0))[None].to(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=scale)

        outs = []
        if num_cls_q:
            outs.append(F.scaled_dot_product_attention(q[:, :, :num_cls_q], k, v, dropout_p=dropout, scale=scale))
        rows = max(1, MAX_SCORES // (q.shape[1] * w * hk * wk))
        for first in range(0, h, rows):
            part = q[:, :, num_cls_q + first * w:num_cls_q + min(first + rows, h) * w]
            recompute = rows < h and torch.is_grad_enabled()
            outs.append(checkpoint(attend, part, table, first, use_reentrant=False) if recompute
                        else attend(part, table, first))
        x = torch.cat(outs, dim=2) if len(outs) > 1 else outs[0]
        return x.transpose(1, 2).flatten(2)

    def _table(self, h: int, w: int, hk: int, wk: int) -> Tensor:
        """Return the bias of each distance that occurs: (heads, all dy, all dx)."""
        like = dict(device=self.weight.device, dtype=torch.promote_types(self.weight.dtype, torch.float32))
        dy = torch.arange(-self.stride * (hk - 1), h, **like)
        dx = torch.arange(-self.stride * (wk - 1), w, **like)
        distances = torch.stack(torch.meshgrid(dy, dx, indexing='ij'), dim=-1)
        distances = (distances.sign() * distances.abs().log1p()).to(self.weight.dtype)
        return F.linear(F.relu(self.fc(distances)), self.weight).permute(2, 0, 1)

    def _bias(self, table: Tensor, first: int, rows: int, w: int, hk: int, wk: int) -> Tensor:
        """Return the bias of the query rows from ``first``: (heads, rows * w, hk * wk)."""
        def index(start: int, count: int, keys: int) -> Tensor:
            queries = torch.arange(start, start + count, device=table.device)[:, None]
            return queries + self.stride * (keys - 1 - torch.arange(keys, device=table.device))

        bias = table[:, index(first, rows, hk)][..., index(0, w, wk)]  # heads, rows, hk, w, wk
        return bias.transpose(2, 3).flatten(3).flatten(1, 2)
