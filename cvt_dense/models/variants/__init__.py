"""Further types of ``attn_cfg``, of its ``proj_cfg`` and ``rel_pos_cfg``, and of backbones: one file each.

Importing this package registers them. A new type is a new file, with its line here.
"""
from .hybrid_projection import HybridProjection
from .linear import LinearAttention
from .pruned import PrunedCvT
from .rel_pos_bias import RelPosBias
from .rotary import RotaryPositions
from .windowed import WindowedAttention

__all__ = [
    'HybridProjection', 'LinearAttention', 'PrunedCvT', 'RelPosBias', 'RotaryPositions', 'WindowedAttention'
]
