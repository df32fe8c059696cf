"""Pure functions between CvT state dicts of different origin; nothing here reads or writes a file."""
from ..errors import CheckpointError
from .compare import Comparison, check, compare
from .formats import FORMATS, StateDict, backbone_only, convert, huggingface_config, map_head, measure_arch, recognise

__all__ = [
    'FORMATS', 'CheckpointError', 'Comparison', 'StateDict', 'backbone_only', 'check', 'compare', 'convert',
    'huggingface_config', 'map_head', 'measure_arch', 'recognise'
]
