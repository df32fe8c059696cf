"""Record the attention weights of chosen blocks and queries while a model runs unchanged."""
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .entropy import query_entropy
from .observe import BlockPass, observe_attention

Query = str | int | tuple[float, float]


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of some queries in one block, for the last batch.

    Tokens are counted row by row over the map, after the CLS token if the block has one; keys likewise over their own,
    smaller map. Places are (x, y) in pixels of the network's input, of the pixel at the centre of what a token's or
    key's convolutions see; the CLS token's are NaN.

    Args:
        block: e.g. 'stage2.blocks.9'.
        weights: (B, heads, queries, keys), float32 or wider; rows sum to 1.
        queries: (queries, ), which token each one is.
        query_rows: the rows of ``weights`` that belong to each of the queries that were given.
        allowed: (queries, keys), False where windows keep a query from a key.
        num_cls: number of CLS tokens: 1 or 0.
        hw_shape, hw_keys: tokens and keys of the map, (height, width).
        token_places, key_places: (x, y) of all, (tokens, 2) and (keys, 2).
        key_start, key_step: a key's place along a side is ``key_start + key_step * index``, in tokens.
    """
    block: str
    weights: Tensor
    queries: Tensor
    query_rows: dict[Query, slice]
    allowed: Tensor
    num_cls: int
    hw_shape: tuple[int, int]
    hw_keys: tuple[int, int]
    token_places: Tensor
    key_places: Tensor
    key_start: float
    key_step: int

    def select(self, query: Query) -> 'AttentionRecord':
        """Return the record of one query alone: an element of ``record_attention``'s ``queries``.

        Raises:
            ValueError: it was not recorded, or is the CLS token of a block without one.
        """
        rows = self.query_rows.get(query)
        if rows is None:
            raise ValueError(f'{self.block} has no record of the query {query!r}: it has {list(self.query_rows)}.')
        return replace(self, weights=self.weights[:, :, rows], queries=self.queries[rows],
                       query_rows={query: slice(None)}, allowed=self.allowed[rows])


@contextmanager
def record_attention(model: nn.Module,
                     blocks: Sequence[str] | None = None,
                     queries: Query | Sequence[Query] = 256,
                     average_heads: bool = False) -> Iterator[dict[str, AttentionRecord]]:
    """Record the softmax weights of chosen queries in every forward pass while the ``with`` lasts.

    The model computes the same results with the same kernels; the weights of the chosen queries are
    computed beside that, from the same projections, without gradient. A compiled model runs uncompiled meanwhile.

    Args:
        model: a CvT, or whatever contains one: classifier, detector, segmentor; global or windowed, fused or not.
        blocks: names as in the parameters, 'stage2.blocks.9', or 'stage2' for all of a stage. Default: all.
        queries: one or several of: 'cls', the CLS token (blocks without one leave it out); (x, y), the token nearest
            to that pixel of the network's input; a number, at most so many tokens spread evenly over the map;
            'all', CLS and map. The weights take 4 bytes x heads x queries x keys: for 'all' of the first stage at
            800x1344 that is 4.5 GB.
        average_heads: keep the mean over the heads only.

    Yields:
        :class:`AttentionRecord` by block's name, of the last pass; empty until one has run.

    Raises:
        ValueError: no CvT, a block that does not exist, an entry that is not a query; in the forward pass, a point
            outside of the image.
    """
    queries = [queries] if isinstance(queries, (str, int, tuple)) else list(queries)
    for query in queries:
        _check_query(query)
    records: dict[str, AttentionRecord] = {}

    def record(block: BlockPass) -> None:
        records[block.block] = _record(block, queries, average_heads)

    with observe_attention(model, blocks, record):
        yield records


@contextmanager
def record_entropy(model: nn.Module, blocks: Sequence[str] | None = None) -> Iterator[dict[str, Tensor]]:
    """Record the entropy of every query, as :func:`record_attention` does its weights, but in linear memory.

    Args, Raises:
        As there.

    Yields:
        (B, heads, tokens) by block's name, CLS first: the entropy over the log of the number of keys that the query
        sees, 0 (one key) to 1 (all alike); see :func:`~cvt_dense.analysis.entropy.query_entropy`.
    """
    entropies: dict[str, Tensor] = {}

    def record(block: BlockPass) -> None:
        q = block.split_heads(block.project_q(torch.arange(block.num_tokens)))
        k = block.split_heads(block.k)
        entropies[block.block] = entropy = q.new_zeros(q.shape[:3])
        for rows, keys in block.groups():
            bound = math.log(len(keys)) or 1.  # of one key the entropy is 0
            entropy[:, :, rows] = query_entropy(q[:, :, rows], k[:, :, keys], block.attention.scale) / bound

    with observe_attention(model, blocks, record):
        yield entropies


# -- queries ---------------------------------------------------------------------------------------------


def _check_query(query: Any) -> None:
    number = isinstance(query, int) and not isinstance(query, bool) and query > 0
    point = isinstance(query, tuple) and len(query) == 2 and all(isinstance(value, (int, float)) for value in query)
    if not (number or point or query in ('cls', 'all')):
        raise ValueError(f"queries={query!r}: allowed are 'cls', 'all', a point (x, y) in pixels of the network's "
                         'input, and a number of at least 1, of tokens spread over the map; or a list of these.')


def _tokens(block: BlockPass, query: Query, places: Tensor) -> Tensor:
    """Return the tokens of a query."""
    num_cls, (height, width) = block.num_cls, block.hw_shape
    if query == 'cls':
        return torch.arange(num_cls)
    if query == 'all':
        return torch.arange(block.num_tokens)
    if isinstance(query, tuple):
        (x, y), (image_height, image_width) = query, block.image
        if not (0 <= x < image_width and 0 <= y < image_height):
            raise ValueError(f'the point x={x:g}, y={y:g} is outside of the image, which is {image_width} pixels wide '
                             f'and {image_height} high as the network gets it: give 0 to {image_width - 1} and 0 to '
                             f'{image_height - 1}.')
        distance = (places[num_cls:] - torch.tensor([x, y])).square().sum(dim=1)
        return distance.argmin()[None] + num_cls
    rows = min(height, max(1, round((query * height / width)**0.5)), query)
    columns = min(width, query // rows)
    y, x = (((torch.arange(number) + 0.5) * side / number).long() for number, side in ((rows, height),
                                                                                      (columns, width)))
    return num_cls + (y[:, None] * width + x).flatten()


def _record(block: BlockPass, queries: list[Query], average_heads: bool) -> AttentionRecord:
    """Compute the weights of the queries from the block's projections."""
    key_start, key_step = block.key_grid()
    places = block.places(block.hw_shape, 0., 1)
    found, query_rows, end = [], {}, 0
    for query in queries:
        tokens = _tokens(block, query, places)
        if len(tokens):
            found.append(tokens)
            query_rows[query] = slice(end, end + len(tokens))
            end += len(tokens)
    tokens = torch.cat(found) if found else torch.zeros(0, dtype=torch.long)
    windows = block.windows()
    allowed = torch.ones(len(tokens), block.k.shape[1], dtype=torch.bool)
    if windows is not None:
        of_query, of_key = windows[0][tokens][:, None], windows[1][None]
        allowed = (of_query == of_key) | (of_query < 0) | (of_key < 0)
    q, k = block.split_heads(block.project_q(tokens)), block.split_heads(block.k)
    scores = (block.attention.scale * q @ k.transpose(2, 3)).masked_fill(~allowed.to(q.device), -torch.inf)
    weights = scores.softmax(dim=-1)
    if average_heads:
        weights = weights.mean(dim=1, keepdim=True)
    return AttentionRecord(block.block, weights, tokens, query_rows, allowed, block.num_cls, block.hw_shape,
                           block.hw_keys, places, block.places(block.hw_keys, key_start, key_step), key_start, key_step)
