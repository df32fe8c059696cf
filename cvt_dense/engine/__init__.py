from .hooks import (
                    CostHook,
                    FuseHook,
                    NonFiniteLossHook,
                    ProgressBarHook,
                    RawWeightsHook,
                    SafeCheckpointHook,
                    SeedHook,
                    UnreadableImagesHook,
)
from .layer_decay import LayerDecayOptimWrapperConstructor
from .runner import ContinuingRunner

__all__ = [
    'ContinuingRunner', 'CostHook', 'FuseHook', 'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook',
    'ProgressBarHook', 'RawWeightsHook', 'SafeCheckpointHook', 'SeedHook', 'UnreadableImagesHook'
]
