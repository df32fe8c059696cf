"""CvT's transformer block (paper, section 3)."""
from collections.abc import Callable

import torch
from timm.layers import DropPath, LayerScale, Mlp
from torch import Tensor, nn

from .conv_attention import ConvAttention
from .norm import LayerNorm, QuickGELU


class Block(nn.Module):
    """Pre-norm block: convolutional attention, then an MLP, each with a residual and drop path.

    Args:
        embed_dims: channels of the tokens.
        mlp_ratio: hidden channels of the MLP over ``embed_dims``.
        drop_rate: dropout of the attention's output and inside the MLP.
        drop_path_rate: stochastic depth of both residual branches.
        act_layer: ``() -> module``, the MLP's activation; may work in place.
        layer_scale_init_value: factor of each channel of both residual branches at the start, learned; None: no factor.
        attention: further arguments of :class:`ConvAttention`.
    """
    attention: type[ConvAttention] = ConvAttention

    def __init__(self,
                 embed_dims: int,
                 num_heads: int,
                 mlp_ratio: float = 4.,
                 drop_rate: float = 0.,
                 drop_path_rate: float = 0.,
                 act_layer: Callable[[], nn.Module] = QuickGELU,
                 layer_scale_init_value: float | None = None,
                 **attention):
        super().__init__()
        self.norm1 = LayerNorm(embed_dims)
        self.attn = self.attention(embed_dims, num_heads, proj_drop_rate=drop_rate, **attention)
        self.norm2 = LayerNorm(embed_dims)
        self.mlp = Mlp(embed_dims, int(embed_dims * mlp_ratio), act_layer=act_layer, drop=drop_rate)
        scaled = layer_scale_init_value is not None
        self.ls1 = LayerScale(embed_dims, layer_scale_init_value) if scaled else nn.Identity()
        self.ls2 = LayerScale(embed_dims, layer_scale_init_value) if scaled else nn.Identity()
        self.drop_path = DropPath(drop_path_rate) if drop_path_rate > 0. else nn.Identity()

    def forward(self, x: Tensor, hw_shape: tuple[int, int]) -> Tensor:
        """Tokens (B, [1 +] H * W, embed_dims) to tokens of the same shape."""
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x), hw_shape)))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))

    def fuse(self) -> None:
        """Folds BatchNorm, QuickGELU's factor and LayerScale into the layers beside them; see ``CvT.fuse``."""
        self.attn.fuse()
        if isinstance(self.mlp.act, QuickGELU):
            factor = self.mlp.act.factor
            with torch.no_grad():
                self.mlp.fc1.weight.mul_(factor)
                self.mlp.fc1.bias.mul_(factor)
                self.mlp.fc2.weight.div_(factor)
            self.mlp.act = nn.SiLU(inplace=True)
        for name, linear in (('ls1', self.attn.proj), ('ls2', self.mlp.fc2)):
            scale = getattr(self, name)
            if isinstance(scale, LayerScale):
                with torch.no_grad():
                    linear.weight.mul_(scale.gamma[:, None])
                    linear.bias.mul_(scale.gamma)
                setattr(self, name, nn.Identity())
