"""Attention with convolutional projections (paper, section 3.2)."""
from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from .conv_embed import for_convolution
from .hybrid_projection import HybridProjection
from .linear_attention import FocusedLinearAttention
from .norm import keeps_statistics
from .position import RelPosBias, RotaryPositions
from .windows import attend, attend_in_windows, opaque_attend_in_windows

PROJECTION_METHODS = ('dw_bn', 'avg', 'linear')


class ConvAttention(nn.Module):
    """Multi-head attention whose q, k and v are convolved over the map before the linear layers.

    A leading CLS token passes the convolutions by and joins q, k and v before the linear layers
    (authors' behaviour). The scale is ``embed_dims ** -0.5``, not ``head_dims ** -0.5``.

    With ``window_size`` w, a query of the map attends to the keys of its own window of w x w tokens
    and to the CLS token; the CLS token attends to everything. The convolutions still run over the
    whole map, so neighbouring windows see each other's borders. Windows at the right and lower edge
    of a map that w does not divide are smaller. No parameter depends on w.

    Args:
        embed_dims: channels of the tokens.
        num_heads: attention heads.
        qkv_bias: bias of the q, k and v linear layers.
        attn_drop_rate: dropout of the attention weights.
        proj_drop_rate: dropout of the output.
        method: ``'dw_bn'``: depth-wise convolution and BatchNorm for q, k and v; ``'avg'``: average
            pooling (``ceil_mode``) for k and v, nothing for q; ``'linear'``: nothing for all three.
        kernel_size: of the convolution or pooling.
        stride_q, stride_kv: of the projection; ``stride_q`` must keep the map's size.
        padding_q, padding_kv: of the projection.
        window_size: side of the attention windows in tokens of the map, a multiple of ``stride_kv``;
            None attends globally. Not with ``'avg'``, whose keys lie on no grid that windows divide.
        head_dims: channels of a head. Default: ``embed_dims`` over ``num_heads``, which then divides it.
        mixing: ``'hybrid'``: the convolutions of ``'dw_bn'`` are :class:`HybridProjection`.
        attention: ``'linear'``: :class:`FocusedLinearAttention` in place of softmax attention.
        rel_pos: ``'cpb'``: :class:`RelPosBias`; ``'rope'``: :class:`RotaryPositions`.
        norm_layer: ``channels -> module``, the BatchNorm of ``'dw_bn'``.
    """

    def __init__(self,
                 embed_dims: int,
                 num_heads: int,
                 qkv_bias: bool = True,
                 attn_drop_rate: float = 0.,
                 proj_drop_rate: float = 0.,
                 method: str = 'dw_bn',
                 kernel_size: int = 3,
                 stride_q: int = 1,
                 stride_kv: int = 2,
                 padding_q: int = 1,
                 padding_kv: int = 1,
                 window_size: int | None = None,
                 head_dims: int | None = None,
                 mixing: str | None = None,
                 attention: str = 'softmax',
                 rel_pos: str | None = None,
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d):
        super().__init__()
        self.num_heads = num_heads
        self.scale = embed_dims**-0.5
        self.attn_drop_rate = attn_drop_rate
        self.window_size = window_size
        self.stride_kv = stride_kv if method == 'dw_bn' else 1
        self.any_size = False  # inference that torch.compile can compile once for maps of all sizes

        def conv_proj(method: str, stride: int, padding: int) -> nn.Module | None:
            if method == 'dw_bn' and mixing == 'hybrid':
                return HybridProjection(embed_dims, kernel_size, stride, padding, norm_layer)
            if method == 'dw_bn':
                return nn.Sequential(
                    OrderedDict(
                        conv=nn.Conv2d(
                            embed_dims, embed_dims, kernel_size, stride, padding,
                            groups=embed_dims, bias=False),
                        bn=norm_layer(embed_dims)))
            if method == 'avg':
                return nn.AvgPool2d(kernel_size, stride, padding, ceil_mode=True)
            return None

        self.conv_proj_q = conv_proj('linear' if method == 'avg' else method, stride_q, padding_q)
        self.conv_proj_k = conv_proj(method, stride_kv, padding_kv)
        self.conv_proj_v = conv_proj(method, stride_kv, padding_kv)

        dims = num_heads * (head_dims or embed_dims // num_heads)  # fewer once heads were pruned
        self.proj_q = nn.Linear(embed_dims, dims, bias=qkv_bias)
        self.proj_k = nn.Linear(embed_dims, dims, bias=qkv_bias)
        self.proj_v = nn.Linear(embed_dims, dims, bias=qkv_bias)
        self.proj = nn.Linear(dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop_rate)

        self.linear_attention = FocusedLinearAttention(dims, num_heads) if attention == 'linear' else None
        self.rel_pos = None
        if rel_pos == 'cpb':
            self.rel_pos = RelPosBias(num_heads, self.stride_kv)
        elif rel_pos == 'rope':
            self.rel_pos = RotaryPositions(num_heads, dims // num_heads, self.stride_kv)

    def forward(self, x: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        """Tokens (B, [1 +] H * W, C) to tokens of the same shape; a surplus first one is the CLS token."""
        cls_token, feature_map = self._as_map(x, hw_shape)

        def project(conv: nn.Module | None, linear: nn.Linear) -> Tensor:
            return linear(x if conv is None else self._as_tokens(cls_token, conv(feature_map)))

        q = project(self.conv_proj_q, self.proj_q)
        k = project(self.conv_proj_k, self.proj_k)
        v = project(self.conv_proj_v, self.proj_v)
        if isinstance(self.rel_pos, RotaryPositions):
            q, k = self.rel_pos(q, k, hw_shape)
        if self.linear_attention is not None:
            x = self.linear_attention(q, k, v, hw_shape, self._kv_shape(hw_shape))
        elif self.any_size and self.window_size is not None and not isinstance(self.rel_pos, RelPosBias):
            x = opaque_attend_in_windows(q, k, v, *hw_shape, self.window_size, self.stride_kv, self.num_heads,
                                         self.scale)
        elif self.window_size is None or max(hw_shape) <= self.window_size:
            x = self._attend(q, k, v, hw_shape)
        else:
            x = self._attend_in_windows(q, k, v, hw_shape)
        return self.proj_drop(self.proj(x))

    def _as_map(self, x: Tensor, hw_shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """The CLS token (B, 1 or 0, C) and the map (B, C, H, W)."""
        b, n, c = x.shape
        h, w = hw_shape
        if b == 1 and max(h, w) <= self.stride_kv:
            self._check_batch_norm()
        cls_token, tokens = x.split([n - h * w, h * w], dim=1)
        # A channels-last map is the token sequence seen as an image: no copy either way, except one
        # here to close the gaps that CLS tokens leave between images (or each convolution makes it).
        return cls_token, for_convolution(tokens.contiguous().view(b, h, w, c).permute(0, 3, 1, 2))

    @staticmethod
    def _as_tokens(cls_token: Tensor, feature_map: Tensor) -> Tensor:
        """The CLS token, if there is one, before the tokens of a map."""
        y = feature_map.permute(0, 2, 3, 1).flatten(1, 2)
        return torch.cat((cls_token.to(y.dtype), y), dim=1) if cls_token.shape[1] else y

    def _kv_shape(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        return -(-hw_shape[0] // self.stride_kv), -(-hw_shape[1] // self.stride_kv)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: tuple[int, int] | None = None) -> Tensor:
        """(B, Nq, C), (B, Nk, C), (B, Nk, C) to (B, Nq, C); ``hw_shape``: of q's map, None of the CLS token alone."""
        dropout = self.attn_drop_rate if self.training else 0.
        if not isinstance(self.rel_pos, RelPosBias) or hw_shape is None:
            return attend(q, k, v, self.num_heads, self.scale, dropout)
        q, k, v = (y.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for y in (q, k, v))
        return self.rel_pos(q, k, v, hw_shape, dropout, self.scale).transpose(1, 2).flatten(2)

    def _attend_in_windows(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        """Same shapes as :meth:`_attend`."""
        return attend_in_windows(self._attend, q, k, v, hw_shape, self.window_size, self.stride_kv)

    def _check_batch_norm(self) -> None:
        norm = getattr(self.conv_proj_k, 'bn', None)
        if norm is not None and keeps_statistics(norm) and norm.training:
            raise ValueError('one image whose map is a single token: BatchNorm cannot take statistics of one '
                             'value per channel. Train with norm_eval=True (stored statistics), a larger '
                             'batch or larger images.')

    def fuse(self) -> None:
        """Folds each BatchNorm into its convolution, in place; eval mode only."""
        # k and v stay two convolutions: one with 2C outputs leaves the fast depth-wise kernels and
        # takes three to five times as long as both together.
        for name in ('conv_proj_q', 'conv_proj_k', 'conv_proj_v'):
            conv_proj = getattr(self, name)
            if isinstance(conv_proj, HybridProjection):
                conv_proj.fuse()
                continue
            norm = getattr(conv_proj, 'bn', None)
            if norm is not None and keeps_statistics(norm):
                setattr(self, name, fuse_conv_bn_eval(conv_proj.conv, norm))
