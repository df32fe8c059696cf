"""Attention with convolutional projections (paper, section 3.2)."""
from collections import OrderedDict
from typing import Callable, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PROJECTION_METHODS = ('dw_bn', 'avg', 'linear')


class ConvAttention(nn.Module):
    """Multi-head attention whose q, k and v are convolved over the map before the linear layers.

    A leading CLS token passes the convolutions by and joins q, k and v before the linear layers
    (authors' behaviour). The scale is ``embed_dims ** -0.5``, not ``head_dims ** -0.5``.

    Args:
        embed_dims: channels of the tokens; divisible by ``num_heads``.
        num_heads: attention heads.
        qkv_bias: bias of the q, k and v linear layers.
        attn_drop_rate: dropout of the attention weights.
        proj_drop_rate: dropout of the output.
        method: ``'dw_bn'``: depth-wise convolution and BatchNorm for q, k and v; ``'avg'``: average
            pooling (``ceil_mode``) for k and v, nothing for q; ``'linear'``: nothing for all three.
        kernel_size: of the convolution or pooling.
        stride_q, stride_kv: of the projection; ``stride_q`` must keep the map's size.
        padding_q, padding_kv: of the projection.
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
                 norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d):
        super().__init__()
        self.num_heads = num_heads
        self.scale = embed_dims**-0.5
        self.attn_drop_rate = attn_drop_rate

        def conv_proj(method: str, stride: int, padding: int) -> Optional[nn.Module]:
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

        self.proj_q = nn.Linear(embed_dims, embed_dims, bias=qkv_bias)
        self.proj_k = nn.Linear(embed_dims, embed_dims, bias=qkv_bias)
        self.proj_v = nn.Linear(embed_dims, embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop_rate)

    def forward(self, x: Tensor, hw_shape: Tuple[int, int]) -> Tensor:
        """Tokens (B, [1 +] H * W, C) to tokens of the same shape; a surplus first one is the CLS token."""
        b, n, c = x.shape
        h, w = hw_shape
        cls_token, tokens = x.split([n - h * w, h * w], dim=1)
        # A channels-last map is the token sequence seen as an image: no copy either way.
        feature_map = tokens.reshape(b, h, w, c).permute(0, 3, 1, 2)

        def project(conv: Optional[nn.Module], linear: nn.Linear) -> Tensor:
            y = x
            if conv is not None:
                y = conv(feature_map).permute(0, 2, 3, 1).flatten(1, 2)
                if cls_token.shape[1]:
                    y = torch.cat((cls_token.to(y.dtype), y), dim=1)
            return linear(y).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

        q = project(self.conv_proj_q, self.proj_q)
        k = project(self.conv_proj_k, self.proj_k)
        v = project(self.conv_proj_v, self.proj_v)
        dropout = self.attn_drop_rate if self.training else 0.
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=self.scale)
        return self.proj_drop(self.proj(x.transpose(1, 2).flatten(2)))
