"""Attention with convolutional projections, and the Transformer block around it (paper, section 3.2)."""
from collections import OrderedDict
from collections.abc import Callable

import torch
import torch.nn.functional as F
from timm.layers import DropPath, LayerScale, Mlp
from torch import Tensor, nn

from ..registry import MODELS

Shape = tuple[int, int]  # height and width of a map, in tokens


class LayerNorm(nn.LayerNorm):
    """LayerNorm over the last axis, computed in float32 or wider, with the result in the input's type.

    Autocast on CUDA casts the input to float32 and leaves the result there. Here the residual stream stays in the
    lower precision, for half the memory. ``eps`` is PyTorch's 1e-5.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


def for_convolution(feature_map: Tensor) -> Tensor:
    """Return the map, or under ``torch.compile`` a copy of it, if gradients are off or the map is of one image.

    Of tokens seen as a map with dynamic sizes the compiler (torch 2.13) cannot always infer that they are
    channels-last: a single image gets a batch stride of 0, which oneDNN's convolution does not recognise, and in
    bfloat16 comparing the strides ends with "Invalid ranges [0:-1]". The compiler lays a copy out as it should be.
    """
    if torch.compiler.is_dynamo_compiling() and (feature_map.shape[0] == 1 or not torch.is_grad_enabled()):
        return feature_map.clone(memory_format=torch.contiguous_format)
    return feature_map


@MODELS.register_module()
class QuickGELU(nn.Module):
    """``x * sigmoid(1.702 x)``, the activation of the authors' checkpoints (not the exact GELU).

    Args:
        inplace: whether the input may be overwritten.
    """

    factor = 1.702

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        # As SiLU of the scaled input it keeps two tensors for the backward pass instead of three. SiLU's gradient
        # needs its input only, so its output may be scaled in place.
        x = x.mul_(self.factor) if self.inplace else x * self.factor
        # A traced graph is the same with and without gradients.
        in_place = not (x.requires_grad or torch.jit.is_tracing())
        return F.silu(x, inplace=in_place).mul_(1 / self.factor)


def has_statistics(module: nn.Module) -> bool:
    """Return whether ``module`` is a BatchNorm of any class (mmcv's MMSyncBN does not inherit from PyTorch's)."""
    return getattr(module, 'running_mean', None) is not None


def keep_statistics(model: nn.Module) -> None:
    """Let every BatchNorm of ``model`` use its stored statistics, and leave them as they are."""
    for module in filter(has_statistics, model.modules()):
        module.eval()


@MODELS.register_module()
class ConvAttention(nn.Module):
    """Multi-head attention whose q, k and v are convolved over the map before their linear layers.

    The T tokens (CLS) in front of the map's tokens bypass the convolutions and join q, k and v before the
    linear layers (the authors' behaviour). The scale is ``embed_dims ** -0.5``, not ``head_dims ** -0.5``.

    This is the default type of ``attn_cfg``. A variant is a subclass in a file of its own in ``variants/``, registered
    like this one; usually it takes its own arguments and ``**kwargs`` for this class, and overrides :meth:`attend`.

    Args:
        embed_dims: channels of the tokens.
        num_heads: attention heads, a divisor of ``embed_dims``.
        qkv_bias: whether the q, k and v linear layers have a bias.
        qkv_proj_method: ``'dw_bn'``: depth-wise convolution and BatchNorm for q, k and v; ``'avg'``: average pooling
            (``ceil_mode``) for k and v, nothing for q; ``'linear'``: nothing for all three.
        kernel_qkv: kernel of the convolutions, which is odd, or of the pooling. q's convolution keeps the map's size.
        stride_kv, padding_kv: stride and padding of k's and v's convolution or pooling.
        attn_drop_rate: dropout of the attention weights; CvT's argument of this name sets it.
        proj_drop_rate: dropout of the output; CvT's ``drop_rate`` sets it.
        norm_layer: ``channels -> module``, the norm of ``'dw_bn'``.

    Raises:
        ValueError: ``num_heads`` does not divide ``embed_dims``, ``qkv_proj_method`` has another value, or
            ``kernel_qkv`` of ``'dw_bn'`` is even.
    """

    def __init__(self, embed_dims: int, num_heads: int, qkv_bias: bool = True, qkv_proj_method: str = 'dw_bn',
                 kernel_qkv: int = 3, stride_kv: int = 2, padding_kv: int = 1, attn_drop_rate: float = 0.,
                 proj_drop_rate: float = 0., norm_layer: Callable[[int], nn.Module] = nn.BatchNorm2d):
        super().__init__()
        if embed_dims % num_heads:
            raise ValueError(f'embed_dims={embed_dims} is not divisible by num_heads={num_heads}.')
        if qkv_proj_method not in ('dw_bn', 'avg', 'linear'):
            raise ValueError(f"qkv_proj_method={qkv_proj_method!r}: allowed are 'dw_bn', 'avg' and 'linear'.")
        if qkv_proj_method == 'dw_bn' and kernel_qkv % 2 == 0:
            raise ValueError(f'kernel_qkv={kernel_qkv}: q keeps the size of the map with an odd kernel only.')
        self.num_heads = num_heads
        self.scale = embed_dims**-0.5
        self.attn_drop_rate = attn_drop_rate
        self.stride_kv = 1 if qkv_proj_method == 'linear' else stride_kv
        # Whether k's map is exactly stride_kv times smaller than q's, rounded up, as windows need it.
        self.has_aligned_keys = qkv_proj_method == 'linear' or (
            qkv_proj_method == 'dw_bn' and 2 * padding_kv + 1 == kernel_qkv)

        def conv_proj(stride: int, padding: int) -> nn.Module | None:
            if qkv_proj_method == 'linear':
                return None
            if qkv_proj_method == 'avg':
                return nn.AvgPool2d(kernel_qkv, stride, padding, ceil_mode=True)
            conv = nn.Conv2d(embed_dims, embed_dims, kernel_qkv, stride, padding, groups=embed_dims, bias=False)
            return nn.Sequential(OrderedDict(conv=conv, bn=norm_layer(embed_dims)))

        self.conv_proj_q = None if qkv_proj_method == 'avg' else conv_proj(1, kernel_qkv // 2)
        self.conv_proj_k = conv_proj(stride_kv, padding_kv)
        self.conv_proj_v = conv_proj(stride_kv, padding_kv)
        self.proj_q, self.proj_k, self.proj_v = (nn.Linear(embed_dims, embed_dims, bias=qkv_bias) for _ in range(3))
        self.proj = nn.Linear(embed_dims, embed_dims)
        self.proj_drop = nn.Dropout(proj_drop_rate)

    def forward(self, x: Tensor, hw_shape: Shape) -> Tensor:
        """Map tokens (B, T + H * W, C) to tokens of the same shape."""
        q, k, v = self.convolve(x, hw_shape)
        return self.proj_drop(self.proj(self.attend(self.proj_q(q), self.proj_k(k), self.proj_v(v), hw_shape)))

    def convolve(self, x: Tensor, hw_shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
        """Map tokens (B, T + H * W, C) to those of q (the same shape), k and v (B, T + H' * W', C)."""
        b, n, c = x.shape
        h, w = hw_shape
        cls_token, tokens = x.split([n - h * w, h * w], dim=1)
        # A channels-last map is the token sequence seen as an image, without a copy either way. The one copy here
        # closes the gaps that CLS tokens leave between images; without it each convolution would make its own.
        feature_map = for_convolution(tokens.contiguous().view(b, h, w, c).permute(0, 3, 1, 2))

        def to_tokens(conv_proj: nn.Module | None) -> Tensor:
            if conv_proj is None:
                return x
            y = conv_proj(feature_map).permute(0, 2, 3, 1).flatten(1, 2)
            return torch.cat((cls_token.to(y.dtype), y), dim=1) if n > h * w else y

        return to_tokens(self.conv_proj_q), to_tokens(self.conv_proj_k), to_tokens(self.conv_proj_v)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape | None, bias: Tensor | None = None) -> Tensor:
        """Compute the attention of each query to all keys.

        Args:
            q: (B, T + H * W, C).
            k, v: (B, T + H' * W', C).
            hw_shape: (H, W) of q's map; None where q is the T tokens alone.
            bias: (B, 1, Nq, Nk), added to the scores.

        Returns:
            The shape of ``q``.
        """
        q, k, v = (y.unflatten(2, (self.num_heads, -1)).transpose(1, 2) for y in (q, k, v))
        dropout = self.attn_drop_rate if self.training else 0.
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, dropout_p=dropout, scale=self.scale)
        return x.transpose(1, 2).flatten(2)


class Block(nn.Module):
    """Pre-norm block: attention, then an MLP, each with a residual connection and drop path.

    Args:
        embed_dims: channels of the tokens.
        attn: the attention.
        mlp_ratio: hidden channels of the MLP over ``embed_dims``.
        drop_rate: dropout inside the MLP.
        drop_path_rate: stochastic depth of both residual branches.
        act_layer: ``() -> module``, the MLP's activation; may work in place.
        layer_scale_init_value: start value of a learned factor of each channel of both branches; None: no factor.
    """

    def __init__(self, embed_dims: int, attn: nn.Module, mlp_ratio: float = 4., drop_rate: float = 0.,
                 drop_path_rate: float = 0., act_layer: Callable[[], nn.Module] = QuickGELU,
                 layer_scale_init_value: float | None = None):
        super().__init__()
        self.norm1 = LayerNorm(embed_dims)
        self.attn = attn
        self.norm2 = LayerNorm(embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio), act_layer=act_layer, drop=drop_rate)
        scaled = layer_scale_init_value is not None
        self.ls1 = LayerScale(embed_dims, layer_scale_init_value) if scaled else nn.Identity()
        self.ls2 = LayerScale(embed_dims, layer_scale_init_value) if scaled else nn.Identity()
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate > 0. else nn.Identity()

    def forward(self, x: Tensor, hw_shape: Shape) -> Tensor:
        """Map tokens (B, T + H * W, embed_dims), of T tokens and a map of shape (H, W) to tokens of the same shape."""
        # Under autocast timm's LayerScale returns float32.
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x), hw_shape)).to(x.dtype))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))).to(x.dtype))
