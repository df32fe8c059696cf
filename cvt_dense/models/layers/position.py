"""Positions for an attention that has none: a bias of scores, or a rotation of queries and keys.

Both are functions of the distance p_q - stride * p_k in tokens of the map, so they hold at any resolution, in windows
and for strided keys, and both start neutral: an attention without them has the same output. The CLS token has no place
and takes no part.
"""
import torch
import torch.nn.functional as F
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Shape = tuple[int, int]
# Scores that are biased at once: more are cut into bands of query rows, recomputed in the backward pass, so that no
# tensor of all queries by all keys is made. Stage 3 at 384x384 (24x24 tokens, 6 heads) has a tenth of it.
MAX_SCORES = 2**22


class RelPosBias(nn.Module):
    """Continuous relative position bias in log coordinates (Swin V2, arXiv 2111.09883, section 3.3).

    ``softmax(scale * q k^T + B)``, where B is an MLP of ``sign(d) * log(1 + |d|)`` of the distances d = (dy, dx), as in
    timm's ``RelPosMlp``; its last layer starts at 0. The MLP sees each distance once, 4 values an area of the map.

    Costs the CPU its flash kernel in training, which takes no bias with a gradient, and one more pass of attention
    where the map is cut into bands (:data:`MAX_SCORES`): meant for windows and for the small maps of late stages.

    Args:
        num_heads: heads of the attention.
        stride: of the keys, in tokens.
        hidden_dims: of the MLP.
    """

    def __init__(self, num_heads: int, stride: int, hidden_dims: int = 128):
        super().__init__()
        self.stride = stride
        self.fc = nn.Linear(2, hidden_dims)
        self.weight = nn.Parameter(torch.zeros(num_heads, hidden_dims))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape, dropout: float, scale: float) -> Tensor:
        """Attention of (B, heads, [CLS +] H * W, D) to (B, heads, [CLS +] Hk * Wk, D); Hk = ceil(H / stride)."""
        h, w = hw_shape
        hk, wk = (-(-side // self.stride) for side in hw_shape)
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
        return torch.cat(outs, dim=2) if len(outs) > 1 else outs[0]

    def _table(self, h: int, w: int, hk: int, wk: int) -> Tensor:
        """(heads, all dy, all dx): the bias of each distance that occurs."""
        device = self.weight.device
        dy = torch.arange(-self.stride * (hk - 1), h, device=device, dtype=torch.float32)
        dx = torch.arange(-self.stride * (wk - 1), w, device=device, dtype=torch.float32)
        distances = torch.stack(torch.meshgrid(dy, dx, indexing='ij'), dim=-1)
        distances = distances.sign() * distances.abs().log1p()
        return F.linear(F.relu(self.fc(distances)), self.weight).permute(2, 0, 1)

    def _bias(self, table: Tensor, first: int, rows: int, w: int, hk: int, wk: int) -> Tensor:
        """(heads, rows * w, hk * wk) of the query rows from ``first``."""
        def index(start: int, count: int, keys: int) -> Tensor:
            queries = torch.arange(start, start + count, device=table.device)[:, None]
            return queries + self.stride * (keys - 1 - torch.arange(keys, device=table.device))

        bias = table[:, index(first, rows, hk)][..., index(0, w, wk)]  # heads, rows, hk, w, wk
        return bias.transpose(2, 3).flatten(3).flatten(1, 2)


class RotaryPositions(nn.Module):
    """Rotary embedding in two dimensions with learned frequencies (RoPE-Mixed, arXiv 2403.13298), by timm's functions.

    Turns queries and keys by angles that are linear in their places, so that scores depend on distances, at the cost of
    one pass over q and k: for maps of any size. Frequencies start at 0, which turns nothing.

    Args:
        num_heads: heads of the attention.
        head_dims: channels of a head, even.
        stride: of the keys, in tokens.
    """

    def __init__(self, num_heads: int, head_dims: int, stride: int):
        super().__init__()
        try:
            from timm.layers.pos_embed_sincos import get_mixed_freqs  # noqa: F401
        except ImportError as error:
            raise ImportError("rel_pos='rope' needs get_mixed_freqs, which this timm has not: update it.") from error
        self.stride = stride
        self.freqs = nn.Parameter(torch.zeros(2, num_heads, head_dims // 2))

    def forward(self, q: Tensor, k: Tensor, hw_shape: Shape) -> tuple[Tensor, Tensor]:
        """q (B, [CLS +] H * W, C) and k (B, [CLS +] Hk * Wk, C), of which the map's tokens are turned."""
        hw_kv = tuple(-(-side // self.stride) for side in hw_shape)
        return self._turn(q, hw_shape, 1), self._turn(k, hw_kv, self.stride)

    def _turn(self, x: Tensor, hw_shape: Shape, stride: int) -> Tensor:
        from timm.layers.pos_embed_sincos import get_mixed_freqs
        y, x_ = torch.meshgrid(*(torch.arange(side, device=x.device) * stride for side in hw_shape), indexing='ij')
        embedding = get_mixed_freqs(self.freqs, x_.flatten(), y.flatten())  # (heads, H * W, 2 * head_dims)
        cls_token, tokens = x.split([x.shape[1] - y.numel(), y.numel()], dim=1)
        heads = tokens.unflatten(2, (self.freqs.shape[1], -1)).transpose(1, 2)
        turned = apply_rot_embed_cat(heads, embedding).to(x.dtype).transpose(1, 2).flatten(2)
        return torch.cat((cls_token, turned), dim=1) if cls_token.shape[1] else turned
