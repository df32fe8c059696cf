from . import hooks
from .amp import AutocastOptimWrapper
from .checkpoint import SafeCheckpointHook
from .hooks import *  # noqa: F403
from .layer_decay import LayerDecayOptimWrapperConstructor
from .runner import CvTRunner

__all__ = hooks.__all__ + [
    'AutocastOptimWrapper', 'CvTRunner', 'LayerDecayOptimWrapperConstructor', 'SafeCheckpointHook',
]
