"""A block that computes only where it matters: some tokens go through it, the others keep their value."""
import torch
import torch.nn.functional as F
from torch import Tensor

from .block import Block
from .conv_attention import ConvAttention
from .entropy import query_entropy

SCORES = ('entropy', 'random', 'norm')
# Entropies that choose tokens are of at most about so many keys. At 800x1344 CvT-13's first stage has 16,800: a pass
# over all of them costs as much as the attention that is saved.
SCORED_KEYS = 256


class PrunedAttention(ConvAttention):
    """:class:`ConvAttention` of some of the tokens, to all keys and values of the map; globally, without windows."""

    def forward(self, x: Tensor, hw_shape: tuple[int, int], rows: Tensor | None, keep: float) -> tuple[Tensor, Tensor]:
        """Tokens (B, [1 +] H * W, C) to (B, kept, C), and the rows that these are.

        Args:
            rows: see :func:`choose`; None chooses those of the lowest entropy.
            keep: share of the map's tokens to choose.
        """
        cls_token, feature_map = self._as_map(x, hw_shape)
        q, k, v = (x if conv is None else self._as_tokens(cls_token, conv(feature_map))
                   for conv in (self.conv_proj_q, self.conv_proj_k, self.conv_proj_v))
        k = self.proj_k(k)
        if rows is None:
            rows = choose(-self._entropy(self.proj_q(q), k, cls_token.shape[1]), keep, cls_token.shape[1])
        x = self._attend(self.proj_q(take(q, rows)), k, self.proj_v(v))
        return self.proj_drop(self.proj(x)), rows

    def _entropy(self, q: Tensor, k: Tensor, num_cls: int) -> Tensor:
        """(B, H * W): the entropy of each query on the map, the mean over the heads, without gradient.

        Where there are many keys, over the means of neighbours along a row: how widely a query looks shows there too.
        """
        q, k = q.detach()[:, num_cls:], k.detach()[:, num_cls:]
        cell = -(-k.shape[1] // SCORED_KEYS)
        if cell > 1:
            k = F.avg_pool1d(k.transpose(1, 2), cell, ceil_mode=True).transpose(1, 2)
        q, k = (y.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for y in (q, k))
        if q.device.type == 'meta':
            return query_entropy(q, k, self.scale).mean(dim=1)
        with torch.autocast(q.device.type, enabled=False):  # half types round nearly equal entropies to equal ones
            return query_entropy(q.float(), k.float(), self.scale).mean(dim=1)


class PrunedBlock(Block):
    """:class:`Block` of which only kept tokens go through q, attention, projection and MLP.

    Convolutions, keys and values are of the whole map, and so is what comes out: a token that is not kept has the value
    that it came with, and a later block may keep it. The CLS token is always kept.

    ``'entropy'`` keeps the queries whose attention has the lowest entropy. Such a query has found particular keys, so
    what attention adds to it is its own. One of high entropy looks at everything alike: it gets the mean of the values,
    which it shares with all others of its kind, and loses least by going without. ``'norm'`` (the largest tokens)
    and ``'random'`` are there to compare with.

    Args:
        keep: share of the map's tokens, above 0.
        score: one of ``SCORES``.
        block: further arguments of :class:`Block`.
    """
    attention = PrunedAttention

    def __init__(self, *args, keep: float, score: str, **block):
        super().__init__(*args, **block)
        self.keep, self.score = keep, score

    def forward(self, x: Tensor, hw_shape: tuple[int, int], rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Tokens (B, [1 +] H * W, embed_dims) to tokens of the same shape, and the rows that were kept.

        Args:
            rows: those of an earlier block, to be kept again; None chooses.
        """
        num_cls = x.shape[1] - hw_shape[0] * hw_shape[1]
        if rows is None and self.score != 'entropy':
            tokens = x.detach()[:, num_cls:]
            scores = torch.rand_like(tokens[..., 0]) if self.score == 'random' else tokens.norm(dim=2)
            rows = choose(scores, self.keep, num_cls)
        y, rows = self.attn(self.norm1(x), hw_shape, rows, self.keep)
        y = take(x, rows) + self.drop_path(self.ls1(y))
        y = y + self.drop_path(self.ls2(self.mlp(self.norm2(y))))
        return x.flatten(0, 1).index_copy(0, rows, y.flatten(0, 1).to(x.dtype)).view_as(x), rows


def choose(scores: Tensor, keep: float, num_cls: int) -> Tensor:
    """Rows of the tokens (B * N, C) to keep: each image's CLS token, and its map tokens with the highest scores.

    As many of each image, whatever is in it, rounded up; in their order on the map.

    Args:
        scores: (B, H * W).
        keep: share of the map's tokens.
        num_cls: CLS tokens before them.

    Returns:
        (B * kept, ), indices.
    """
    batch, tokens = scores.shape
    millionths = max(1, round(keep * 10**6))
    kept = (tokens * millionths + 10**6 - 1) // 10**6  # whole numbers only, as exporters of any size need them
    best = scores.topk(kept, dim=1, sorted=False).indices.sort(dim=1).values + num_cls
    best = torch.cat((torch.arange(num_cls, device=best.device).expand(batch, -1), best), dim=1)
    return (best + torch.arange(batch, device=best.device)[:, None] * (num_cls + tokens)).flatten()


def take(x: Tensor, rows: Tensor) -> Tensor:
    """The rows of (B, N, C) that :func:`choose` returned: (B, kept, C)."""
    return x.flatten(0, 1).index_select(0, rows).unflatten(0, (x.shape[0], -1))
