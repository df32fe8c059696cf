"""Attention and a block that compute only some of the tokens; the others keep their value."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...analysis.entropy import query_entropy
from ...registry import MODELS
from ..attention import Block, ConvAttention, Shape

SCORES = ('entropy', 'random', 'norm')
# Number of keys over which the entropies that choose tokens are computed, at most. At 800x1344 the first stage of
# CvT-13 has 16,800 keys: a pass over all of them costs as much as the attention that is saved.
SCORED_KEYS = 256


class PrunedBlock(Block):
    """:class:`Block` of which only the kept tokens go through q, attention, projection and MLP.

    Convolutions, keys and values are of the whole map, and so is the output: a token that is not kept is returned
    unchanged, and a later block may keep it. The CLS token is always kept.
    """

    def forward(self, x: Tensor, hw_shape: Shape, carry: tuple[Tensor, int] | None = None
                ) -> tuple[Tensor, tuple[Tensor, int] | None]:
        """Map tokens to tokens of the same shape.

        Args:
            x: (B, [1 +] H * W, embed_dims).
            hw_shape: (H, W).
            carry: the rows that an earlier block chose, see :func:`choose`, and how many blocks still use them;
                with None this block chooses.

        Returns:
            The tokens, and ``carry`` for the next block.
        """
        rows, blocks_left = carry or (None, self.attn.refresh)
        y, rows = self.attn(self.norm1(x), hw_shape, rows, x)
        y = take(x, rows) + self.drop_path(self.ls1(y))
        y = y + self.drop_path(self.ls2(self.mlp(self.norm2(y))))
        x = x.flatten(0, 1).index_copy(0, rows, y.flatten(0, 1).to(x.dtype)).view_as(x)
        return x, (rows, blocks_left - 1) if blocks_left > 1 else None


@MODELS.register_module()
class PrunedAttention(ConvAttention):
    """:class:`ConvAttention` of some of the tokens to all keys and values of the map, in a :class:`PrunedBlock`.

    ``'entropy'`` keeps the queries whose attention has the lowest entropy. Such a query has found particular keys, so
    what attention adds to it is its own. A query of high entropy attends to everything alike: it gets the mean of the
    values, as all queries of high entropy do, and loses least if it is left out. ``'norm'`` (the largest
    tokens) and ``'random'`` are there for comparison.

    The same weights load, with or without fine-tuning, and all shapes are fixed, so it compiles and exports. It is
    meant for images of the size that detectors use; on small images, choosing tokens costs as much as it saves.

    Args:
        keep: fraction of the map's tokens to keep, above 0 and up to 1.
        refresh: number of blocks after which tokens are chosen again.
        score: ``'entropy'``, ``'norm'`` or ``'random'``.
        kwargs: arguments of :class:`ConvAttention`, without ``rel_pos_cfg``.

    Raises:
        ValueError: a value is not allowed.
    """
    block_type = PrunedBlock

    def __init__(self, keep: float, refresh: int = 4, score: str = 'entropy', **kwargs: Any):
        super().__init__(**kwargs)
        if not 0 < keep <= 1 or refresh < 1 or score not in SCORES:
            raise ValueError(f'keep={keep!r}, refresh={refresh!r}, score={score!r}: allowed are a fraction above 0 and '
                             f'up to 1, a number of blocks from 1, and one of {SCORES}.')
        if self.rel_pos is not None:
            raise ValueError('rel_pos_cfg needs every token of the map: leave it out of stages with PrunedAttention.')
        self.keep, self.refresh, self.score = keep, refresh, score

    def forward(self, x: Tensor, hw_shape: Shape, rows: Tensor | None = None, tokens: Tensor | None = None
                ) -> tuple[Tensor, Tensor]:
        """Map tokens (B, [1 +] H * W, C) to (B, kept, C), and the rows that these are.

        Args:
            rows: the rows to keep, see :func:`choose`; None chooses them.
            tokens: ``x`` before its norm, which ``'norm'`` compares.
        """
        num_cls = x.shape[1] - hw_shape[0] * hw_shape[1]
        q, k, v = self.convolve(x, hw_shape)
        k = self.proj_k(k)
        if rows is None:
            rows = choose(self._scores(q, k, tokens, num_cls), self.keep, num_cls)
        x = self.attend(self.proj_q(take(q, rows)), k, self.proj_v(v), None)
        return self.proj_drop(self.proj(x)), rows

    def _scores(self, q: Tensor, k: Tensor, tokens: Tensor, num_cls: int) -> Tensor:
        """Return what is highest for the tokens to keep: (B, H * W)."""
        tokens = tokens.detach()[:, num_cls:]
        if self.score == 'random':
            return torch.rand_like(tokens[..., 0])
        if self.score == 'norm':
            return tokens.norm(dim=2)
        return -self._entropy(self.proj_q(q), k, num_cls)

    def _entropy(self, q: Tensor, k: Tensor, num_cls: int) -> Tensor:
        """Return the entropy of each query on the map, the mean over the heads, without gradient: (B, H * W).

        Many keys are replaced by the means of neighbours along a row, which show how widely a query attends too.
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


def choose(scores: Tensor, keep: float, num_cls: int) -> Tensor:
    """Choose the tokens to keep: each image's CLS token, and its map tokens with the highest scores.

    Args:
        scores: (B, H * W).
        keep: fraction of the map's tokens; the number is rounded up and the same for each image.
        num_cls: CLS tokens in front of them.

    Returns:
        Indices into the rows of tokens (B * N, C), in their order on the map: (B * kept, ).
    """
    batch, tokens = scores.shape
    millionths = max(1, round(keep * 10**6))
    kept = (tokens * millionths + 10**6 - 1) // 10**6  # in integers, as exporters of any size need it
    best = scores.topk(kept, dim=1, sorted=False).indices.sort(dim=1).values + num_cls
    best = torch.cat((torch.arange(num_cls, device=best.device).expand(batch, -1), best), dim=1)
    return (best + torch.arange(batch, device=best.device)[:, None] * (num_cls + tokens)).flatten()


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Return the rows of (B, N, C) that :func:`choose` returned: (B, kept, C)."""
    kept = len(rows) // x.shape[0] if x.shape[0] else 0
    return x.flatten(0, 1).index_select(0, rows).unflatten(0, (x.shape[0], kept))
