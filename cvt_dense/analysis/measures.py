"""Measures of recorded attention, in the definitions of their sources.

Each takes an :class:`AttentionRecord` (or several) of any queries; ``A`` are its weights (queries x keys).
"""
from collections.abc import Sequence

import torch
from torch import Tensor

from .record import AttentionRecord


def attention_distance(record: AttentionRecord) -> Tensor:
    """Compute each head's mean attention distance in pixels of the network's input: ``mean_i sum_j A_ij |p_i - p_j|``.

    The distance from a query's place to the places of the keys, weighted by attention: Dosovitskiy et al. 2021
    (arXiv 2010.11929, figure 7); Raghu et al. 2021 (arXiv 2108.08810). Keys are strided here: ``p_j`` is the centre of
    what the key was convolved of, not its index. The CLS token has no place: as a query it is left out, as a key too,
    and the weights of the others are scaled to a sum of 1.

    Returns:
        (heads, ), the mean over images and queries.

    Raises:
        ValueError: the record has no query on the map.
    """
    rows = record.queries >= record.num_cls
    if not rows.any():
        raise ValueError(f'{record.block}: the distance is that of queries on the map, and none was recorded.')
    weights = record.weights[:, :, rows, record.num_cls:]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    places = record.token_places[record.queries[rows]]
    distances = torch.cdist(places.double(), record.key_places[record.num_cls:].double()).to(weights)
    return (weights * distances).sum(dim=-1).mean(dim=(0, 2))


def attention_entropy(record: AttentionRecord) -> Tensor:
    """Compute each head's entropy over the log of the number of keys: ``mean_i -sum_j A_ij log A_ij / log n_i``.

    The value is 0 if one key has all the weight and 1 if all keys have the same. Clark et al. 2019 (arXiv 1906.04341)
    give it in nats. ``n_i`` is the number of keys that the query attends to: with windows, those of its window and CLS.
    A query with one key has 0.

    Returns:
        (heads, ), the mean over images and queries.
    """
    keys = record.allowed.sum(dim=1).to(record.weights)
    bound = torch.where(keys > 1, keys.log(), torch.ones_like(keys))
    return (torch.special.entr(record.weights).sum(dim=-1) / bound).mean(dim=(0, 2))


def effective_rank(record: AttentionRecord) -> Tensor:
    """Compute the effective rank of each head's attention: ``exp(-sum_k p_k log p_k)``, ``p = sigma / sum(sigma)``.

    ``sigma`` are the singular values of ``A``. Roy and Vetterli 2007, "The effective rank: a measure of effective
    dimensionality". For a sample of queries it is at most their number.

    Returns:
        (heads, ), the mean over images.
    """
    sigma = torch.linalg.svdvals(record.weights)
    return torch.special.entr(sigma / sigma.sum(dim=-1, keepdim=True)).sum(dim=-1).exp().mean(dim=0)


def attention_map(record: AttentionRecord) -> Tensor:
    """Return where each query attends to: (B, heads, queries, H, W) over the keys' map, without the CLS token's weight.

    Of ``record.select('cls')`` it is the CLS attention of Caron et al. 2021 (arXiv 2104.14294).
    """
    return record.weights[..., record.num_cls:].unflatten(-1, record.hw_keys)


def keys_on_tokens(record: AttentionRecord) -> Tensor:
    """Return ``P`` (keys x tokens), which spreads a key's weight over the tokens; its rows sum to 1.

    A key of a strided convolution represents the tokens around its centre: each gets
    ``max(0, 1 - |token - centre| / stride)`` along either side. That is bilinear interpolation's transpose, so that
    even attention stays even, which equal weights of the 3 x 3 tokens under the kernel would not: neighbouring kernels
    overlap on every other token. With stride 1 it is the identity. CLS goes to CLS.
    """
    def side(tokens: int, keys: int) -> Tensor:
        centres = record.key_start + record.key_step * torch.arange(keys, dtype=torch.float64)
        weights = (1 - (torch.arange(tokens) - centres[:, None]).abs() / record.key_step).clamp(min=0)
        return weights / weights.sum(dim=1, keepdim=True)

    on_map = torch.kron(*(side(*sides) for sides in zip(record.hw_shape, record.hw_keys)))
    return torch.block_diag(torch.eye(record.num_cls, dtype=on_map.dtype), on_map).to(record.weights)


def average_attention(records: Sequence[AttentionRecord]) -> Tensor:
    """Average attention over heads and layers: (B, queries, tokens), keys spread by :func:`keys_on_tokens`.

    Args:
        records: records of the same queries in blocks of one stage.
    """
    mean = torch.stack([record.weights.mean(dim=1) for record in records]).mean(dim=0)
    return mean @ keys_on_tokens(records[0])


def rollout(records: Sequence[AttentionRecord], start: Tensor | None = None) -> Tensor:
    """Compute attention rollout through a stage's blocks: ``R = T_L ... T_2 T_1`` with ``T = (A P + I) / 2``.

    ``A`` is the mean over the heads, ``P`` is :func:`keys_on_tokens`, the identity represents the residual connection:
    Abnar and Zuidema 2020 (arXiv 2005.00928). Rows sum to 1: how much of each token that enters the first of the
    blocks is in a token that leaves the last. It stays inside a stage, since tokens are embedded again between stages.

    Args:
        records: records of ``queries='all'``, from the stage's first block to its last.
        start: (rows, tokens), rows to compute instead of all, each a mix of the tokens that leave: a row of the
            identity for one token, ``1 / tokens`` everywhere for their mean. Costs less by as much.

    Returns:
        (B, rows, tokens).

    Raises:
        ValueError: a record lacks queries, or is of another stage.
    """
    first = records[0]
    tokens = first.num_cls + first.hw_shape[0] * first.hw_shape[1]
    for record in records:
        if len(record.queries) != tokens or record.block.split('.')[0] != first.block.split('.')[0]:
            raise ValueError(f"{record.block}: rollout needs all queries (queries='all') of blocks of one stage, here "
                             f'{first.block.split(".")[0]}.')
    keys = keys_on_tokens(first)
    rows = torch.eye(tokens) if start is None else start
    rows = rows.to(keys).expand(len(first.weights), -1, -1)
    for record in reversed(records):
        rows = (rows @ record.weights.mean(dim=1) @ keys + rows) / 2
    return rows
