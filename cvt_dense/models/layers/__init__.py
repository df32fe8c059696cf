from .block import Block
from .conv_attention import ConvAttention
from .conv_embed import ConvEmbed
from .norm import LayerNorm, QuickGELU

__all__ = ['Block', 'ConvAttention', 'ConvEmbed', 'LayerNorm', 'QuickGELU']
