"""Hooks on a CvT's attention: what comes in, the projections, and where tokens and keys lie."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.backbones import CvT
from ..models.layers import ConvAttention


def find_cvt(model: nn.Module) -> CvT:
    """The CvT in ``model``.

    Raises:
        ValueError: there is none.
    """
    for module in model.modules():
        if isinstance(module, CvT):
            return module
    raise ValueError(f'{type(model).__name__} contains no cvt_dense.CvT, whose attention could be recorded.')


@dataclass
class Seen:
    """One block's attention in one pass: its projections, and where they lie."""
    block: str
    attention: ConvAttention
    start: float  # of the first token along a side, in pixels
    step: int  # between tokens, in pixels
    tokens: Tensor | None = None  # (B, tokens, C), what comes in
    q_map: Tensor | None = None  # (B, C, H, W), convolved; None: q is not
    k: Tensor | None = None  # (B, keys, C)
    hw_shape: tuple[int, int] = (0, 0)
    hw_keys: tuple[int, int] = (0, 0)
    image: tuple[int, int] = (0, 0)

    @property
    def num_tokens(self) -> int:
        return self.tokens.shape[1]

    @property
    def num_cls(self) -> int:
        return self.num_tokens - self.hw_shape[0] * self.hw_shape[1]

    def heads(self, x: Tensor) -> Tensor:
        """(B, N, C) to (B, heads, N, C / heads), float32 or wider."""
        x = x if x.dtype == torch.float64 else x.float()
        return x.unflatten(2, (self.attention.num_heads, -1)).transpose(1, 2)

    def project(self, tokens: Tensor) -> Tensor:
        """q of these tokens, (B, tokens, C), whether or not the block computes it itself."""
        x = self.tokens
        if self.q_map is not None:
            x = torch.cat((x[:, :self.num_cls].to(self.q_map.dtype), self.q_map.flatten(2).transpose(1, 2)), dim=1)
        linear = self.attention.proj_q
        return F.linear(x[:, tokens.to(x.device)].to(linear.weight.dtype), linear.weight, linear.bias)

    def key_grid(self) -> tuple[float, int]:
        """(place of the first key along a side, distance between keys), in tokens."""
        conv = self.attention.conv_proj_k
        if conv is None:
            return 0., 1
        kernel, stride, padding = _side(getattr(conv, 'conv', conv))
        return (kernel - 1) / 2 - padding, stride

    def places(self, hw: tuple[int, int], first: float, step: float) -> Tensor:
        """(x, y) of a grid's points row by row, after NaN for each CLS token; ``first`` and ``step`` in tokens."""
        y, x = (self.start + self.step * (first + step * torch.arange(side)) for side in hw)
        grid = torch.stack((x.repeat(hw[0]), y.repeat_interleave(hw[1])), dim=1).float()
        return torch.cat((grid.new_full((self.num_cls, 2), torch.nan), grid))

    def windows(self) -> tuple[Tensor, Tensor] | None:
        """The window of each token and each key, -1 of CLS; None: attention is global."""
        size, stride = self.attention.window_size, self.attention.stride_kv
        if size is None or max(self.hw_shape) <= size:
            return None

        def number(hw: tuple[int, int], side: int) -> Tensor:
            y, x = (torch.arange(length) // side for length in hw)
            return torch.cat((y.new_full((self.num_cls, ), -1), (y[:, None] * self.hw_shape[1] + x).flatten()))

        return number(self.hw_shape, size), number(self.hw_keys, size // stride)

    def groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Tokens that see the same keys, and these."""
        windows, keys = self.windows(), torch.arange(self.k.shape[1])
        if windows is None:
            yield torch.arange(self.num_tokens), keys
            return
        for window in windows[0].unique().tolist():
            seen = keys if window < 0 else keys[(windows[1] == window) | (windows[1] < 0)]
            yield (windows[0] == window).nonzero()[:, 0], seen


def _side(module: nn.Module) -> tuple[int, int, int]:
    """Kernel, stride and padding along a side of a convolution or pooling; both are square."""
    values = (module.kernel_size, module.stride, module.padding)
    return tuple(value[0] if isinstance(value, tuple) else value for value in values)


@contextmanager
def observed(model: nn.Module, blocks: Sequence[str] | None, see: Callable[[Seen], None]) -> Iterator[None]:
    """Calls ``see`` after each chosen block's attention."""
    backbone = find_cvt(model)
    chosen = _choose(backbone, blocks)
    image: list[tuple[int, int]] = [(0, 0)]

    def attach(seen: Seen) -> Iterator[Any]:
        attention = seen.attention

        def before(_, args: tuple) -> None:
            seen.tokens, seen.hw_shape, seen.image = args[0].detach(), tuple(args[1]), image[0]
            seen.hw_keys = seen.hw_shape

        def after(*_: Any) -> None:
            with torch.no_grad(), torch.autocast(seen.tokens.device.type, enabled=False):
                see(seen)
            seen.tokens = seen.q_map = seen.k = None

        yield attention.register_forward_pre_hook(before)
        yield attention.register_forward_hook(after)
        yield attention.proj_k.register_forward_hook(lambda _, args, out: setattr(seen, 'k', out.detach()))
        if attention.conv_proj_q is not None:
            yield attention.conv_proj_q.register_forward_hook(
                lambda _, args, out: setattr(seen, 'q_map', out.detach()))
        if attention.conv_proj_k is not None:
            yield attention.conv_proj_k.register_forward_hook(
                lambda _, args, out: setattr(seen, 'hw_keys', tuple(out.shape[2:])))

    with ExitStack() as stack:
        if hasattr(torch.compiler, 'set_stance'):  # from torch 2.6 on
            stack.enter_context(torch.compiler.set_stance('force_eager'))
        handles = [backbone.register_forward_pre_hook(
            lambda _, args: image.__setitem__(0, tuple(args[0].shape[2:])))]
        stack.callback(lambda: [handle.remove() for handle in handles])
        start, step = 0., 1
        for i in range(len(backbone.depths)):
            stage = backbone._stage(i)
            kernel, stride, padding = _side(stage.patch_embed.proj)
            start, step = start + step * ((kernel - 1) / 2 - padding), step * stride
            for j, block in enumerate(stage.blocks):
                if f'stage{i}.blocks.{j}' in chosen:
                    _check_softmax(f'stage{i}.blocks.{j}', block.attn)
                    handles += attach(Seen(f'stage{i}.blocks.{j}', block.attn, start, step))
        yield


def _check_softmax(block: str, attention: ConvAttention) -> None:
    """Raises ValueError if attention is not the softmax of q and k alone: what is recorded would be something else."""
    for part, words in (('linear_attention', 'linear attention has no weights between two tokens'),
                        ('rel_pos', 'its scores depend on relative positions too, which are not recorded')):
        if getattr(attention, part, None) is not None:  # variants of CvT
            raise ValueError(f'{block}: {words}. Name other blocks, or record a network without this option.')


def block_names(backbone: CvT) -> list[str]:
    """'stage0.blocks.0' and so on."""
    return [f'stage{i}.blocks.{j}' for i, depth in enumerate(backbone.depths) for j in range(depth)]


def _choose(backbone: CvT, blocks: Sequence[str] | None) -> set[str]:
    depths, names = backbone.depths, block_names(backbone)
    asked = [blocks] if isinstance(blocks, str) else [f'stage{i}' for i in range(len(depths))] if blocks is None else \
        list(blocks)
    chosen: set[str] = set()
    for name in asked:
        found = [block for block in names if block == name or block.startswith(f'{name}.')]
        if not found:
            raise ValueError(f'blocks={name!r}: this CvT has no such block. It has '
                             + ', '.join(f'stage{i}.blocks.0 to .{depth - 1}' if depth > 1 else f'stage{i}.blocks.0'
                                         for i, depth in enumerate(depths))
                             + "; a stage's name stands for all of it.")
        chosen.update(found)
    return chosen
