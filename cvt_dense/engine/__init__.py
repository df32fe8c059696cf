from .checkpoint_hook import SafeCheckpointHook
from .cost_hook import CostHook
from .errors import UserError
from .hooks import FuseHook, NonFiniteLossHook, RawWeightsHook, SeedHook, UnreadableImagesHook
from .layer_decay import LayerDecayOptimWrapperConstructor
from .progress_hook import ProgressBarHook
from .runner import ContinuingRunner

__all__ = [
    'ContinuingRunner', 'CostHook', 'FuseHook', 'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook',
    'ProgressBarHook', 'RawWeightsHook', 'SafeCheckpointHook', 'SeedHook', 'UnreadableImagesHook', 'UserError'
]
