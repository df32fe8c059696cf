"""A CvT whose blocks compute only some of the tokens; the others keep their value."""
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...analysis.entropy import query_entropy
from ...registry import MODELS
from ..attention import Block, ConvAttention, Shape
from ..cvt import CvT, CvTStage, spread

SCORES = ('entropy', 'random', 'norm')
# Number of keys over which the entropies that choose tokens are computed, at most. At 800x1344 the first stage of
# CvT-13 has 16,800 keys: a pass over all of them costs as much as the attention that is saved.
SCORED_KEYS = 256


class PrunedStage(CvTStage):
    """Stage in whose blocks only the kept tokens go through q, attention, projection and MLP.

    Convolutions, keys and values are of the whole map, and so is the output: a token that is not kept is returned
    unchanged, and a later block may keep it. The CLS token is always kept.

    Attributes:
        keep, refresh, score: see :class:`PrunedCvT`; the stage computes all tokens where ``keep`` is None.
    """

    keep: float | None = None
    refresh: int = 4
    score: str = 'entropy'

    def run_blocks(self, x: Tensor, hw_shape: Shape) -> Tensor:
        """Map tokens (B, [1 +] H * W, embed_dims) to tokens of the same shape."""
        if self.keep is None:
            return super().run_blocks(x, hw_shape)
        rows = None
        for i, block in enumerate(self.blocks):
            chosen = rows if i % self.refresh else None
            x, rows = self.run(block, partial(self.run_block, block), x, hw_shape, chosen)
        return x

    def run_block(self, block: Block, x: Tensor, hw_shape: Shape, rows: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map tokens to tokens of the same shape.

        Args:
            block: the block.
            x: (B, [1 +] H * W, embed_dims).
            hw_shape: (H, W).
            rows: the rows to compute, which :func:`choose` returned; None chooses them.

        Returns:
            The tokens, and the rows.
        """
        attn, num_cls = block.attn, x.shape[1] - hw_shape[0] * hw_shape[1]
        q, k, v = attn.convolve(block.norm1(x), hw_shape)
        k = attn.proj_k(k)
        if rows is None:
            rows = choose(self._scores(attn, q, k, x, num_cls), self.keep, num_cls)
        y = attn.proj_drop(attn.proj(attn.attend(attn.proj_q(take(q, rows)), k, attn.proj_v(v), None)))
        y = take(x, rows) + block.drop_path(block.ls1(y))
        y = y + block.drop_path(block.ls2(block.mlp(block.norm2(y))))
        return x.flatten(0, 1).index_copy(0, rows, y.flatten(0, 1).to(x.dtype)).view_as(x), rows

    def _scores(self, attn: ConvAttention, q: Tensor, k: Tensor, tokens: Tensor, num_cls: int) -> Tensor:
        """Return what is highest for the tokens to keep: (B, H * W)."""
        tokens = tokens.detach()[:, num_cls:]
        if self.score == 'random':
            return torch.rand_like(tokens[..., 0])
        return tokens.norm(dim=2) if self.score == 'norm' else -_entropy(attn, attn.proj_q(q), k, num_cls)


@MODELS.register_module()
class PrunedCvT(CvT):
    """:class:`CvT` that computes some of the tokens of a stage and attends to all keys and values of its map.

    ``'entropy'`` keeps the queries whose attention has the lowest entropy. Such a query has found particular keys, so
    what attention adds to it is its own. A query of high entropy attends to everything alike: it gets the mean of the
    values, as all queries of high entropy do, and loses least if it is left out. ``'norm'`` (the largest
    tokens) and ``'random'`` are there for comparison.

    The same weights load, with or without fine-tuning, and all shapes are fixed, so it compiles and exports. It is
    meant for images of the size that detectors use; on small images, choosing tokens costs as much as it saves.
    Attention is recorded on a :class:`CvT` with the same weights, not on this network.

    Args:
        keep: fraction of the map's tokens to keep, above 0 and up to 1; one value or one per stage, None for a stage
            that keeps all.
        refresh: number of blocks after which tokens are chosen again.
        score: ``'entropy'``, ``'norm'`` or ``'random'``.
        kwargs: arguments of :class:`CvT`; ``attn_cfg`` may name types that have :class:`ConvAttention`'s ``attend``.

    Raises:
        ValueError: a value is not allowed.
    """

    stage_type = PrunedStage

    def __init__(self, keep: float | Sequence[float | None], refresh: int = 4, score: str = 'entropy', **kwargs: Any):
        super().__init__(**kwargs)
        fractions = spread('keep', keep, len(self.stages))
        if not all(one is None or 0 < one <= 1 for one in fractions) or refresh < 1 or score not in SCORES:
            raise ValueError(f'keep={keep!r}, refresh={refresh!r}, score={score!r}: allowed are fractions above 0 and '
                             f'up to 1, a number of blocks from 1, and one of {SCORES}.')
        for stage, fraction in zip(self.stages, fractions):
            if fraction is not None and any(getattr(block.attn, 'rel_pos', None) is not None for block in stage.blocks):
                raise ValueError('rel_pos_cfg needs every token of the map: set keep to None for these stages.')
            stage.keep, stage.refresh, stage.score = fraction, refresh, score


def _entropy(attn: ConvAttention, q: Tensor, k: Tensor, num_cls: int) -> Tensor:
    """Return the entropy of each query on the map, the mean over the heads, without gradient: (B, H * W).

    Many keys are replaced by the means of neighbours along a row, which show how widely a query attends too.
    """
    q, k = q.detach()[:, num_cls:], k.detach()[:, num_cls:]
    cell = -(-k.shape[1] // SCORED_KEYS)
    if cell > 1:
        k = F.avg_pool1d(k.transpose(1, 2), cell, ceil_mode=True).transpose(1, 2)
    q, k = (y.unflatten(2, (attn.num_heads, -1)).transpose(1, 2) for y in (q, k))
    if q.device.type == 'meta':
        return query_entropy(q, k, attn.scale).mean(dim=1)
    with torch.autocast(q.device.type, enabled=False):  # half types round nearly equal entropies to equal ones
        return query_entropy(q.float(), k.float(), attn.scale).mean(dim=1)


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
