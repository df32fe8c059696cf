"""Further types of ``attn_cfg`` and of its ``proj_cfg`` and ``rel_pos_cfg``: one file each.

Importing this package registers them. A new type is a new file, with its line here.
"""
from .hybrid_projection import HybridProjection
from .linear import LinearAttention
from .rel_pos_bias import RelPosBias
from .rotary import RotaryPositions
from .windowed import WindowedAttention

__all__ = ['HybridProjection', 'LinearAttention', 'RelPosBias', 'RotaryPositions', 'WindowedAttention']
