"""Hooks on a CvT's attention: its input, its projections, and where tokens and keys lie in the image."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models.attention import ConvAttention
from ..models.cvt import CvT
from ..models.variants.windowed import WindowedAttention


def find_cvt(model: nn.Module) -> CvT:
    """Return the first CvT in ``model``.

    Raises:
        ValueError: there is none.
    """
    for module in model.modules():
        if isinstance(module, CvT):
            return module
    raise ValueError(f'{type(model).__name__} contains no cvt_dense.CvT, whose attention could be recorded.')


def block_names(backbone: CvT) -> list[str]:
    """Return the blocks' names: 'stage0.blocks.0' and so on."""
    return [f'stage{i}.blocks.{j}' for i, depth in enumerate(backbone.depths) for j in range(depth)]


def has_softmax_weights(attention: ConvAttention) -> bool:
    """Return whether the attention is the softmax of q and k alone, which is what can be recorded."""
    known = isinstance(attention, WindowedAttention) or type(attention).attend is ConvAttention.attend
    return known and attention.rel_pos is None


def recordable_blocks(backbone: CvT) -> list[str]:
    """Return the names of the blocks whose attention can be recorded."""
    return [name for name in block_names(backbone) if has_softmax_weights(backbone.get_submodule(name).attn)]


@dataclass
class BlockPass:
    """One block's attention in one forward pass: its input, its projections, and where they lie.

    Args:
        block: the block's name.
        attention: the block's attention.
        start: place of the first token along a side, in pixels.
        step: distance between tokens, in pixels.
        tokens: (B, tokens, C), the input.
        q_map: (B, C, H, W), convolved; None where q is not convolved.
        k: (B, keys, C).
        hw_shape, hw_keys: shapes of the maps of tokens and of keys.
        image: height and width of the network's input.
    """
    block: str
    attention: ConvAttention
    start: float
    step: int
    tokens: Tensor | None = None
    q_map: Tensor | None = None
    k: Tensor | None = None
    hw_shape: tuple[int, int] = (0, 0)
    hw_keys: tuple[int, int] = (0, 0)
    image: tuple[int, int] = (0, 0)

    @property
    def num_tokens(self) -> int:
        """Return the number of query tokens, the CLS token included."""
        return self.tokens.shape[1]

    @property
    def num_cls(self) -> int:
        """Return the number of CLS tokens in front of the map's tokens, 0 or 1."""
        return self.num_tokens - self.hw_shape[0] * self.hw_shape[1]

    def split_heads(self, x: Tensor) -> Tensor:
        """Split (B, N, C) into (B, heads, N, C / heads), float32 or wider."""
        x = x if x.dtype == torch.float64 else x.float()
        return x.unflatten(2, (self.attention.num_heads, -1)).transpose(1, 2)

    def project_q(self, tokens: Tensor) -> Tensor:
        """Compute q of these tokens, (B, tokens, C), whether or not the block computes it itself."""
        x = self.tokens
        if self.q_map is not None:
            x = torch.cat((x[:, :self.num_cls].to(self.q_map.dtype), self.q_map.flatten(2).transpose(1, 2)), dim=1)
        linear = self.attention.proj_q
        return F.linear(x[:, tokens.to(x.device)].to(linear.weight.dtype), linear.weight, linear.bias)

    def key_grid(self) -> tuple[float, int]:
        """Return the place of the first key along a side and the distance between keys, in tokens."""
        conv = self.attention.conv_proj_k
        if conv is None:
            return 0., 1
        kernel, stride, padding = _side(getattr(conv, 'conv', conv))
        return (kernel - 1) / 2 - padding, stride

    def places(self, hw: tuple[int, int], first: float, step: float) -> Tensor:
        """Return (x, y) in pixels of a grid's points row by row, after NaN for each CLS token.

        Args:
            hw: the grid's shape.
            first, step: first point of the grid and distance between its points along a side, in tokens.
        """
        y, x = (self.start + self.step * (first + step * torch.arange(side)) for side in hw)
        grid = torch.stack((x.repeat(hw[0]), y.repeat_interleave(hw[1])), dim=1).float()
        return torch.cat((grid.new_full((self.num_cls, 2), torch.nan), grid))

    def windows(self) -> tuple[Tensor, Tensor] | None:
        """Return the window of each token and of each key, -1 of CLS; None where attention is global."""
        size, stride = getattr(self.attention, 'window_size', None), self.attention.stride_kv
        if size is None or max(self.hw_shape) <= size:
            return None

        def number(hw: tuple[int, int], side: int) -> Tensor:
            y, x = (torch.arange(length) // side for length in hw)
            return torch.cat((y.new_full((self.num_cls, ), -1), (y[:, None] * self.hw_shape[1] + x).flatten()))

        return number(self.hw_shape, size), number(self.hw_keys, size // stride)

    def groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield tokens that attend to the same keys, and these keys."""
        windows, keys = self.windows(), torch.arange(self.k.shape[1])
        if windows is None:
            yield torch.arange(self.num_tokens), keys
            return
        for window in windows[0].unique().tolist():
            inside = keys if window < 0 else keys[(windows[1] == window) | (windows[1] < 0)]
            yield (windows[0] == window).nonzero()[:, 0], inside


def _side(module: nn.Module) -> tuple[int, int, int]:
    """Return kernel, stride and padding along a side of a convolution or pooling; both are square."""
    values = (module.kernel_size, module.stride, module.padding)
    return tuple(value[0] if isinstance(value, tuple) else value for value in values)


@contextmanager
def observe_attention(model: nn.Module, blocks: Sequence[str] | None,
                      callback: Callable[[BlockPass], None]) -> Iterator[None]:
    """Call ``callback`` after each chosen block's attention while the ``with`` statement lasts.

    Args:
        model: network whose backbone is a CvT.
        blocks: names such as ``stage0.blocks.0``; None chooses all of them.
        callback: gets the block's tokens, queries and keys, which are only valid during the call.

    Raises:
        ValueError: a block does not exist, or its attention is not the softmax of q and k alone.
    """
    backbone = find_cvt(model)
    chosen = _choose(backbone, blocks)
    image: list[tuple[int, int]] = [(0, 0)]

    def attach(block: BlockPass) -> Iterator[Any]:
        attention = block.attention

        def before(_: nn.Module, args: tuple) -> None:
            block.tokens, block.hw_shape, block.image = args[0].detach(), tuple(args[1]), image[0]
            block.hw_keys = block.hw_shape

        def after(*_: Any) -> None:
            with torch.no_grad(), torch.autocast(block.tokens.device.type, enabled=False):
                callback(block)
            block.tokens = block.q_map = block.k = None

        yield attention.register_forward_pre_hook(before)
        yield attention.register_forward_hook(after)
        yield attention.proj_k.register_forward_hook(lambda _, args, out: setattr(block, 'k', out.detach()))
        if attention.conv_proj_q is not None:
            yield attention.conv_proj_q.register_forward_hook(
                lambda _, args, out: setattr(block, 'q_map', out.detach()))
        if attention.conv_proj_k is not None:
            yield attention.conv_proj_k.register_forward_hook(
                lambda _, args, out: setattr(block, 'hw_keys', tuple(out.shape[2:])))

    with ExitStack() as stack:
        stack.enter_context(torch.compiler.set_stance('force_eager'))
        handles = [backbone.register_forward_pre_hook(
            lambda _, args: image.__setitem__(0, tuple(args[0].shape[2:])))]
        stack.callback(lambda: [handle.remove() for handle in handles])
        start, step = 0., 1
        for i, stage in enumerate(backbone.stages):
            kernel, stride, padding = _side(stage.patch_embed.proj)
            start, step = start + step * ((kernel - 1) / 2 - padding), step * stride
            for j, block in enumerate(stage.blocks):
                name = f'stage{i}.blocks.{j}'
                if name not in chosen:
                    continue
                if not has_softmax_weights(block.attn):
                    raise ValueError(f'{name}: the weights of {type(block.attn).__name__}'
                                     f'{" with rel_pos_cfg" if block.attn.rel_pos is not None else ""} are not the '
                                     'softmax of q and k alone, so they cannot be recorded. Name other blocks.')
                handles += attach(BlockPass(name, block.attn, start, step))
        yield


def _choose(backbone: CvT, blocks: Sequence[str] | None) -> set[str]:
    """Return the names of the blocks that ``blocks`` selects; None selects all."""
    names = block_names(backbone)
    chosen: set[str] = set()
    for name in [blocks] if isinstance(blocks, str) else names if blocks is None else blocks:
        found = [block for block in names if block == name or block.startswith(f'{name}.')]
        if not found:
            raise ValueError(f"blocks={name!r}: this CvT has no such block. It has {', '.join(names)}; a stage's name "
                             'selects all its blocks.')
        chosen.update(found)
    return chosen
