from .block import Block
from .conv_attention import ConvAttention
from .conv_embed import ConvEmbed
from .norm import LayerNorm, QuickGELU, keeps_statistics
from .stage import CvTStage, StageArch

__all__ = [
    'Block', 'ConvAttention', 'ConvEmbed', 'CvTStage', 'LayerNorm', 'QuickGELU', 'StageArch', 'keeps_statistics'
]
