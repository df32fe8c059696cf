"""Record the attention of chosen blocks and queries while a model runs unchanged."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..models.attention import ConvAttention, Shape
from ..models.cvt import CvT

Query = str | tuple[float, float]


def find_cvt(model: nn.Module) -> CvT:
    """Return the first CvT in ``model``.

    Raises:
        ValueError: there is none.
    """
    for module in model.modules():
        if isinstance(module, CvT):
            return module
    raise ValueError(f'{type(model).__name__} contains no cvt_dense.CvT, whose attention could be recorded.')


def recordable_blocks(backbone: CvT) -> dict[str, ConvAttention]:
    """Return the attention of each block by its name, 'stage0.blocks.0' and so on, if it can be recorded.

    That is the attention whose weights are the softmax of q and k alone, over the whole map.
    """
    attentions = {f'stage{i}.blocks.{j}': block.attn
                  for i, stage in enumerate(backbone.stages) for j, block in enumerate(stage.blocks)}
    return {name: attention for name, attention in attentions.items()
            if type(attention).attend is ConvAttention.attend and attention.rel_pos is None}


@dataclass(frozen=True)
class AttentionRecord:
    """The attention of some queries in one block, for the last batch.

    Keys are counted row by row over their map, after the CLS token if the block has one.

    Args:
        block: e.g. 'stage2.blocks.9'.
        weights: for each query (B, heads, keys), float32 or wider; rows sum to 1.
        num_cls: number of CLS tokens: 1 or 0.
        hw_keys: keys of the map, (height, width).
        extent: left, right, bottom and top of the keys' map in pixels of the network's input; a key's place is the
            centre of what its convolutions see.
    """
    block: str
    weights: dict[Query, Tensor]
    num_cls: int
    hw_keys: Shape
    extent: tuple[float, float, float, float]


@contextmanager
def record_attention(model: nn.Module, queries: Sequence[Query] = ('cls', )) -> Iterator[dict[str, AttentionRecord]]:
    """Record the softmax weights of chosen queries in every forward pass while the ``with`` lasts.

    The model computes the same results with the same kernels; the weights of the chosen queries are computed beside
    that, from the same q and k, without gradient. A compiled model runs uncompiled meanwhile.

    Args:
        model: a CvT, or whatever contains one: classifier, detector, segmentor; fused or not.
        queries: 'cls', the CLS token (left out in blocks without one), and (x, y), the token nearest to that pixel of
            the network's input.

    Yields:
        :class:`AttentionRecord` by the names of :func:`recordable_blocks`, of the last pass; empty until one has run.

    Raises:
        ValueError: there is no CvT.
    """
    backbone = find_cvt(model)
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
        for block, attention in recordable_blocks(backbone).items():
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
    y, x = (start + step * torch.arange(side, dtype=torch.float) for side in hw_shape)
    places = torch.stack((x.repeat(len(y)), y.repeat_interleave(len(x))), dim=1)
    tokens = {query: num_cls + int((places - torch.tensor(query)).norm(dim=1).argmin())
              for query in queries if query != 'cls'}
    if 'cls' in queries and num_cls:
        tokens['cls'] = 0
    if attention.conv_proj_k is not None:
        start, step = _grid_after(getattr(attention.conv_proj_k, 'conv', attention.conv_proj_k), start, step)
    rows = torch.tensor([*tokens.values()], dtype=torch.long)
    q, k = (x if x.dtype == torch.float64 else x.float() for x in (q[:, rows.to(q.device)], k))
    q, k = (x.unflatten(2, (attention.num_heads, -1)).transpose(1, 2) for x in (q, k))
    scores = attention.scale * q @ k.transpose(2, 3)
    weights = dict(zip(tokens, scores.softmax(dim=-1).unbind(2)))
    first, (bottom, right) = start - step / 2, (start + step * (side - 0.5) for side in hw_keys)
    return AttentionRecord(block, weights, num_cls, hw_keys, (first, right, bottom, first))


def _grid_after(conv: nn.Module, start: float, step: int) -> tuple[float, int]:
    """Return the first place and the distance of places after a convolution or pooling; all are square."""
    kernel, stride, padding = (value[0] if isinstance(value, tuple) else value
                               for value in (conv.kernel_size, conv.stride, conv.padding))
    return start + step * ((kernel - 1) / 2 - padding), step * stride


def attention_map(record: AttentionRecord, query: Query) -> Tensor:
    """Return where a query attends to: (B, heads, H, W) over the keys' map, without the CLS token's weight.

    Of 'cls' it is the CLS attention of Caron et al. 2021 (arXiv 2104.14294).
    """
    return record.weights[query][..., record.num_cls:].unflatten(-1, record.hw_keys)
