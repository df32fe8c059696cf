"""Further types of ``attn_cfg``: one file each.

Importing this package registers them. A new type is a new file, with its line here.
"""
from .windowed import WindowedAttention

__all__ = ['WindowedAttention']
