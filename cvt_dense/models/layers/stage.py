"""One stage of CvT: the row of options that describes it, and the module that it builds."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .block import Block
from .conv_attention import PROJECTION_METHODS
from .conv_embed import ConvEmbed
from .norm import keeps_statistics
from .pruning import SCORES, PrunedBlock
from .variants import check_variants

# What activation checkpointing keeps all the same: on large maps attention is most of a block's time, while
# its output is about a twentieth of the block's activations.
ATTENTION_KERNELS = [
    getattr(torch.ops.aten, name).default
    for name in ('_scaled_dot_product_flash_attention', '_scaled_dot_product_flash_attention_for_cpu',
                 '_scaled_dot_product_efficient_attention', '_scaled_dot_product_cudnn_attention')
    if hasattr(torch.ops.aten, name)
]


@dataclass(frozen=True, kw_only=True)
class StageArch:
    """The options of one stage, checked; those before ``index`` are keys of :class:`CvT`'s ``arch``, described there.

    Args:
        num_heads: of every block, or one value per block.
        drop_path_rates: of the last block, growing linearly from 0 at the first; or one value per block.
        index: which stage it is, for errors.
        window_size: of every block, or one value per block; see :class:`ConvAttention`.
        keep, refresh, score: of ``token_pruning``, see :class:`CvT` and :class:`PrunedBlock`.
        dist_token: a distillation token behind CLS.
        layer_scale_init_value: see :class:`Block`.
        mixing, attention, rel_pos: see :class:`ConvAttention`.
        pos_embed: side of the learned grid of positional embeddings, see :class:`CvTStage`.

    Raises:
        ValueError: an option's value is not allowed; names it and what is.
    """

    embed_dims: int
    depths: int
    num_heads: int | Sequence[int]
    patch_sizes: int
    patch_strides: int
    patch_paddings: int
    mlp_ratios: float = 4.
    qkv_bias: bool = True
    qkv_proj_method: str = 'dw_bn'
    kernel_qkv: int = 3
    stride_q: int = 1
    padding_q: int = 1
    stride_kv: int = 2
    padding_kv: int = 1
    head_dims: int | None = None
    cls_token: bool = False
    drop_rates: float = 0.
    attn_drop_rates: float = 0.
    drop_path_rates: float | Sequence[float] = 0.
    index: int = 0
    window_size: int | None | Sequence[int | None] = None
    keep: float | None = None
    refresh: int = 4
    score: str = 'entropy'
    dist_token: bool = False
    layer_scale_init_value: float | None = None
    mixing: str | None = None
    attention: str = 'softmax'
    pos_embed: int | None = None
    rel_pos: str | None = None

    def __post_init__(self):
        i, method = self.index, self.qkv_proj_method
        self._check_heads()
        if self.depths < 1:
            raise ValueError(f'arch.depths[{i}]={self.depths}: a stage needs at least one block.')
        if method not in PROJECTION_METHODS:
            raise ValueError(f'arch.qkv_proj_method={method!r}: allowed are {PROJECTION_METHODS}.')
        if method == 'dw_bn' and (self.stride_q != 1 or 2 * self.padding_q + 1 != self.kernel_qkv):
            raise ValueError(
                f'stride_q={self.stride_q}, padding_q={self.padding_q}, kernel_qkv={self.kernel_qkv} in stage {i}: '
                'the block adds its input to the output, so q must keep the size of the map: stride_q 1 and '
                'padding_q (kernel_qkv - 1) / 2 with an odd kernel.')
        self._check_windows()
        self._check_pruning()
        check_variants(self)

    def _check_heads(self) -> None:
        i, heads, dims = self.index, self.num_heads, self.head_dims
        if isinstance(heads, (list, tuple)) and (len(heads) != self.depths or dims is None or min(heads) < 1):
            raise ValueError(f'arch.num_heads[{i}]={heads!r}: give one number, or one of 1 or more for each of the '
                             f"stage's {self.depths} blocks and arch.head_dims, the channels of a head.")
        if dims is None and self.embed_dims % heads:
            raise ValueError(f'arch.embed_dims[{i}]={self.embed_dims} is not divisible by '
                             f'arch.num_heads[{i}]={heads}.')

    def _check_windows(self) -> None:
        i, method, value = self.index, self.qkv_proj_method, self.window_size
        if isinstance(value, (list, tuple)) and len(value) != self.depths:
            raise ValueError(f'window_size[{i}]={value!r} has {len(value)} values, but stage {i} has '
                             f'{self.depths} blocks: give one value, or one per block.')
        windows = [window for window in self.block_windows if window is not None]
        if windows and (method == 'avg' or (method == 'dw_bn' and 2 * self.padding_kv + 1 != self.kernel_qkv)):
            raise ValueError(
                f'window_size[{i}]={value!r} with qkv_proj_method={method!r}, kernel_qkv={self.kernel_qkv}, '
                f'padding_kv={self.padding_kv}: windows need a k/v map that is exactly stride_kv times smaller: '
                "'linear', or 'dw_bn' with padding_kv (kernel_qkv - 1) / 2; or set window_size to None.")
        stride = self.stride_kv if method == 'dw_bn' else 1
        for window in windows:
            if not isinstance(window, int) or window < 1 or window % stride:
                raise ValueError(f'window_size={window!r} in stage {i}: must be a positive multiple of '
                                 f'stride_kv={stride}, or None for global attention.')

    def _check_pruning(self) -> None:
        i, keep = self.index, self.keep
        number = isinstance(keep, (int, float)) and not isinstance(keep, bool)
        if keep is not None and not (number and 0 < keep <= 1):
            raise ValueError(f'token_pruning.keep={keep!r} in stage {i}: must be a share of the tokens, above 0 and up '
                             'to 1, or None, which prunes nothing.')
        if not isinstance(self.refresh, int) or isinstance(self.refresh, bool) or self.refresh < 1:
            raise ValueError(f'token_pruning.refresh={self.refresh!r}: must be a number of blocks, 1 or more.')
        if self.score not in SCORES:
            raise ValueError(f'token_pruning.score={self.score!r}: allowed are {SCORES}.')
        if self.prunes and any(window is not None for window in self.block_windows):
            raise ValueError(
                f'token_pruning.keep={keep!r} with window_size={self.window_size!r} in stage {i}: each window would '
                'hold another number of kept tokens, so nothing would have a fixed shape, and attention in windows is '
                'cheap already. Set keep to None in this stage, or its window_size.')

    @property
    def prunes(self) -> bool:
        """Whether blocks leave tokens out."""
        return self.keep is not None and self.keep < 1

    @property
    def block_heads(self) -> tuple[int, ...]:
        """``num_heads`` of each block."""
        value = self.num_heads
        return tuple(value) if isinstance(value, (list, tuple)) else (value, ) * self.depths

    @property
    def block_windows(self) -> tuple[int | None, ...]:
        """``window_size`` of each block."""
        value = self.window_size
        return tuple(value) if isinstance(value, (list, tuple)) else (value, ) * self.depths

    @property
    def block_drop_paths(self) -> tuple[float, ...]:
        """Drop path rate of each block."""
        value = self.drop_path_rates
        if not isinstance(value, (list, tuple)):
            value = torch.linspace(0, value, self.depths, device='cpu').tolist()
        return tuple(value)


@contextmanager
def _recomputation(module: nn.Module, reuse: AbstractContextManager) -> Iterator[None]:
    """Reuses what was kept, and leaves the running statistics where the first pass put them."""
    norms = [m for m in module.modules() if keeps_statistics(m)]
    saved = [(m.momentum, m.num_batches_tracked) for m in norms]
    for m in norms:
        # The second pass counts on a copy. (None instead of it is what SyncBatchNorm refuses.)
        m.momentum, m.num_batches_tracked = 0., m.num_batches_tracked.clone()
    try:
        with reuse:
            yield
    finally:
        for m, (momentum, count) in zip(norms, saved):
            m.momentum, m.num_batches_tracked = momentum, count


def _checkpoint_contexts(block: nn.Module) -> tuple[AbstractContextManager, AbstractContextManager]:
    keep, reuse = create_selective_checkpoint_contexts(ATTENTION_KERNELS)
    # torch.compile takes these two alone; in its graph, what a block does to statistics is done once.
    return keep, reuse if torch.compiler.is_compiling() else _recomputation(block, reuse)


class CvTStage(nn.Module):
    """Token embedding, an optional CLS token, and blocks.

    With ``arch.pos_embed`` a learned grid of embeddings, of that many tokens a side, is resized to the map and added to
    its tokens. It starts at 0.

    Args:
        in_channels: channels of the map that comes in.
        arch: the stage's options.
        with_cp: recompute each block, except its attention kernel, in the backward pass instead of
            keeping its activations.
        norm_layer: ``channels -> module``, the BatchNorm of the 'dw_bn' projections.
        act_layer: ``() -> module``, the MLPs' activation; may work in place.
    """

    def __init__(self, in_channels: int, arch: StageArch, with_cp: bool,
                 norm_layer: Callable[[int], nn.Module], act_layer: Callable[[], nn.Module]):
        super().__init__()
        dims = arch.embed_dims
        self.refresh = arch.refresh if arch.prunes else None
        create = partial(PrunedBlock, keep=arch.keep, score=arch.score) if arch.prunes else Block
        # Before the embedding, so that a seed gives the weights that it always gave.
        blocks = [
            create(
                dims, heads,
                head_dims=arch.head_dims,
                mlp_ratio=arch.mlp_ratios,
                drop_rate=arch.drop_rates,
                drop_path_rate=drop_path,
                act_layer=act_layer,
                qkv_bias=arch.qkv_bias,
                attn_drop_rate=arch.attn_drop_rates,
                method=arch.qkv_proj_method,
                kernel_size=arch.kernel_qkv,
                stride_q=arch.stride_q, stride_kv=arch.stride_kv,
                padding_q=arch.padding_q, padding_kv=arch.padding_kv,
                window_size=window,
                layer_scale_init_value=arch.layer_scale_init_value,
                mixing=arch.mixing, attention=arch.attention, rel_pos=arch.rel_pos,
                norm_layer=norm_layer)
            for drop_path, window, heads in zip(arch.block_drop_paths, arch.block_windows, arch.block_heads)
        ]
        self.patch_embed = ConvEmbed(in_channels, dims, arch.patch_sizes, arch.patch_strides, arch.patch_paddings)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dims)) if arch.cls_token else None
        self.dist_token = nn.Parameter(torch.zeros(1, 1, dims)) if arch.dist_token else None
        self.pos_embed = nn.Parameter(torch.zeros(1, dims, arch.pos_embed, arch.pos_embed)) if arch.pos_embed else None
        self.pos_drop = nn.Dropout(arch.drop_rates)
        self.blocks = nn.ModuleList(blocks)
        self.with_cp = with_cp

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None, tuple[int, int]]:
        """(B, C, H, W) to map tokens (B, H' * W', embed_dims), CLS (B, 1, embed_dims) or None, (H', W').

        With a distillation token the second is (B, 2, embed_dims): CLS, then that.
        """
        x, hw_shape = self.patch_embed(x)
        if self.pos_embed is not None:
            resize = hw_shape != tuple(self.pos_embed.shape[2:])
            grid = F.interpolate(self.pos_embed, hw_shape, mode='bicubic') if resize else self.pos_embed
            x = x + grid.flatten(2).transpose(1, 2).to(x.dtype)
        prefix = [token for token in (self.cls_token, self.dist_token) if token is not None]
        if prefix:
            x = torch.cat((*(token.expand(x.shape[0], -1, -1).to(x.dtype) for token in prefix), x), dim=1)
        x = self.pos_drop(x)
        rows = None
        for i, block in enumerate(self.blocks):
            if self.refresh is None:
                x = self._run(block, x, hw_shape)
            else:
                x, rows = self._run(block, x, hw_shape, rows if i % self.refresh else None)
        if self.cls_token is None:
            return x, None, hw_shape
        return x[:, len(prefix):], x[:, :len(prefix)], hw_shape

    def _run(self, block: nn.Module, x: Tensor, *args: Any) -> Any:
        if self.with_cp and x.requires_grad:
            return checkpoint(block, x, *args, use_reentrant=False, context_fn=partial(_checkpoint_contexts, block))
        return block(x, *args)
