"""Record and measure the attention of chosen blocks and queries while a model runs unchanged."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..models.attention import ConvAttention, Shape
from ..models.cvt import CvT
from ..models.variants.windowed import WindowedAttention

Query = str | int | tuple[float, float]


def find_cvt(model: nn.Module) -> CvT:
    """Return the first CvT in ``model``.

    Raises:
        ValueError: there is none.
    """
    for module in model.modules():
        if isinstance(module, CvT):
            return module
    raise ValueError(f'{type(model).__name__} contains no cvt_dense.CvT, whose attention could be recorded.')


def block_attentions(backbone: CvT) -> dict[str, ConvAttention]:
    """Return the attention of each block by the block's name: 'stage0.blocks.0' and so on."""
    return {f'stage{i}.blocks.{j}': block.attn
            for i, stage in enumerate(backbone.stages) for j, block in enumerate(stage.blocks)}


def has_softmax_weights(attention: ConvAttention) -> bool:
    """Return whether the attention is the softmax of q and k alone, which is what can be recorded."""
    known = isinstance(attention, WindowedAttention) or type(attention).attend is ConvAttention.attend
    return known and attention.rel_pos is None


def recordable_blocks(backbone: CvT) -> list[str]:
    """Return the names of the blocks whose attention can be recorded."""
    return [name for name, attention in block_attentions(backbone).items() if has_softmax_weights(attention)]


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
        num_cls: number of CLS tokens: 1 or 0.
        hw_shape, hw_keys: tokens and keys of the map, (height, width).
        token_places, key_places: (x, y) of all, (tokens, 2) and (keys, 2).
    """
    block: str
    weights: Tensor
    queries: Tensor
    query_rows: dict[Query, slice]
    num_cls: int
    hw_shape: Shape
    hw_keys: Shape
    token_places: Tensor
    key_places: Tensor

    def select(self, query: Query) -> 'AttentionRecord':
        """Return the record of one query alone: an element of ``record_attention``'s ``queries``.

        Raises:
            KeyError: it was not recorded.
        """
        rows = self.query_rows[query]
        return replace(self, weights=self.weights[:, :, rows], queries=self.queries[rows],
                       query_rows={query: slice(None)})


@contextmanager
def record_attention(model: nn.Module, blocks: Sequence[str] = (), queries: Sequence[Query] = (256, )
                     ) -> Iterator[dict[str, AttentionRecord]]:
    """Record the softmax weights of chosen queries in every forward pass while the ``with`` lasts.

    The model computes the same results with the same kernels; the weights of the chosen queries are computed beside
    that, from the same q and k, without gradient. A compiled model runs uncompiled meanwhile.

    Args:
        model: a CvT, or whatever contains one: classifier, detector, segmentor; global or windowed, fused or not.
        blocks: some of :func:`recordable_blocks`. Default: all of them.
        queries: some of: 'cls', the CLS token (of no row in blocks without one); (x, y), the token nearest to that
            pixel of the network's input; a number, at most so many tokens spread evenly over the map; 'all', CLS and
            map. The weights take 4 bytes x heads x queries x keys: for 'all' of the first stage at 800x1344 that is
            4.5 GB.

    Yields:
        :class:`AttentionRecord` by block's name, of the last pass; empty until one has run.

    Raises:
        ValueError: there is no CvT.
        KeyError: a block does not exist or cannot be recorded.
    """
    backbone = find_cvt(model)
    recordable = {name: block_attentions(backbone)[name] for name in recordable_blocks(backbone)}
    records: dict[str, AttentionRecord] = {}
    seen: dict[str, Tensor] = {}  # what the running block has computed so far

    def keep(name: str) -> Callable[..., None]:
        return lambda _, args, out: seen.__setitem__(name, out.detach())

    def finish(block: str) -> Callable[..., None]:
        def record(attention: ConvAttention, args: tuple, _: Tensor) -> None:
            hw_keys = seen['k_map'].shape[2:] if 'k_map' in seen else args[1]
            with torch.no_grad(), torch.autocast(args[0].device.type, enabled=False):
                records[block] = _record(backbone, block, attention, seen['q'], seen['k'], args[1], tuple(hw_keys),
                                         queries)
            seen.clear()
        return record

    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance('force_eager'))
        for block in blocks or recordable:
            attention = recordable[block]
            hooks = {attention.proj_q: keep('q'), attention.proj_k: keep('k'), attention: finish(block)}
            if attention.conv_proj_k is not None:
                hooks[attention.conv_proj_k] = keep('k_map')
            for module, hook in hooks.items():
                stack.callback(module.register_forward_hook(hook).remove)
        yield records


def _record(backbone: CvT, block: str, attention: ConvAttention, q: Tensor, k: Tensor, hw_shape: Shape, hw_keys: Shape,
            queries: Sequence[Query]) -> AttentionRecord:
    """Compute the weights of the queries from q (B, tokens, C) and k (B, keys, C)."""
    num_cls = q.shape[1] - hw_shape[0] * hw_shape[1]
    start, step = 0., 1  # place of the first token along a side and distance between tokens, in pixels
    for stage in backbone.stages[:int(block.split('.')[0].removeprefix('stage')) + 1]:
        start, step = _grid_after(stage.patch_embed.proj, start, step)
    token_places = _places(hw_shape, num_cls, start, step)
    if attention.conv_proj_k is not None:
        start, step = _grid_after(getattr(attention.conv_proj_k, 'conv', attention.conv_proj_k), start, step)
    chosen, query_rows, end = [], {}, 0
    for query in queries:
        chosen.append(_tokens(query, num_cls, hw_shape, token_places))
        query_rows[query] = slice(end, end := end + len(chosen[-1]))
    tokens = torch.cat(chosen)
    q, k = (x if x.dtype == torch.float64 else x.float() for x in (q[:, tokens.to(q.device)], k))
    q, k = (x.unflatten(2, (attention.num_heads, -1)).transpose(1, 2) for x in (q, k))
    scores = attention.scale * q @ k.transpose(2, 3)
    size = getattr(attention, 'window_size', None)
    if size is not None and max(hw_shape) > size:
        of_query = _windows(hw_shape, num_cls, size)[tokens][:, None]
        of_key = _windows(hw_keys, num_cls, size // attention.stride_kv)[None]
        apart = (of_query != of_key) & (of_query >= 0) & (of_key >= 0)
        scores = scores.masked_fill(apart.to(q.device), -torch.inf)
    return AttentionRecord(block, scores.softmax(dim=-1), tokens, query_rows, num_cls, hw_shape, hw_keys, token_places,
                           _places(hw_keys, num_cls, start, step))


def _grid_after(conv: nn.Module, start: float, step: int) -> tuple[float, int]:
    """Return the first place and the distance of places after a convolution or pooling; all are square."""
    kernel, stride, padding = (value[0] if isinstance(value, tuple) else value
                               for value in (conv.kernel_size, conv.stride, conv.padding))
    return start + step * ((kernel - 1) / 2 - padding), step * stride


def _places(hw: Shape, num_cls: int, start: float, step: int) -> Tensor:
    """Return (x, y) in pixels of a map's points row by row, after NaN for each CLS token."""
    y, x = (start + step * torch.arange(side) for side in hw)
    grid = torch.stack((x.repeat(hw[0]), y.repeat_interleave(hw[1])), dim=1).float()
    return torch.cat((grid.new_full((num_cls, 2), torch.nan), grid))


def _windows(hw: Shape, num_cls: int, size: int) -> Tensor:
    """Return the window of each point of a map, after -1 for each CLS token."""
    y, x = (torch.arange(side) // size for side in hw)
    return torch.cat((y.new_full((num_cls, ), -1), (y[:, None] * 10**6 + x).flatten()))


def _tokens(query: Query, num_cls: int, hw_shape: Shape, places: Tensor) -> Tensor:
    """Return the tokens of a query."""
    if query == 'cls':
        return torch.arange(num_cls)
    if query == 'all':
        return torch.arange(len(places))
    if isinstance(query, tuple):
        return (places[num_cls:] - torch.tensor(query)).square().sum(dim=1).argmin()[None] + num_cls
    height, width = hw_shape
    rows = min(height, max(1, round((query * height / width)**0.5)), query)
    columns = min(width, query // rows)
    y, x = (((torch.arange(number) + 0.5) * side / number).long()
            for number, side in ((rows, height), (columns, width)))
    return num_cls + (y[:, None] * width + x).flatten()


def attention_map(record: AttentionRecord) -> Tensor:
    """Return where each query attends to: (B, heads, queries, H, W) over the keys' map, without the CLS token's weight.

    Of ``record.select('cls')`` it is the CLS attention of Caron et al. 2021 (arXiv 2104.14294).
    """
    return record.weights[..., record.num_cls:].unflatten(-1, record.hw_keys)


def attention_distance(record: AttentionRecord) -> Tensor:
    """Compute each head's mean attention distance in pixels of the network's input: ``mean_i sum_j A_ij |p_i - p_j|``.

    ``A`` are the record's weights (queries x keys). The distance from a query's place to the places of the keys,
    weighted by attention: Dosovitskiy et al. 2021 (arXiv 2010.11929, figure 7); Raghu et al. 2021 (arXiv 2108.08810).
    Keys are strided here: ``p_j`` is the centre of what the key was convolved of, not its index. The CLS token has no
    place: as a query it is left out, as a key too, and the weights of the others are scaled to a sum of 1.

    Returns:
        (heads, ), the mean over images and queries; NaN if no query is on the map.
    """
    rows = record.queries >= record.num_cls
    weights = record.weights[:, :, rows, record.num_cls:]
    weights = weights / weights.sum(dim=-1, keepdim=True)
    places = record.token_places[record.queries[rows]]
    distances = torch.cdist(places.double(), record.key_places[record.num_cls:].double()).to(weights)
    return (weights * distances).sum(dim=-1).mean(dim=(0, 2))
