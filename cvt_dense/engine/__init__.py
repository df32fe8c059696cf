from .hooks import (
                    CostHook,
                    EMAHook,
                    EvaluateLoadedHook,
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
    'ContinuingRunner', 'CostHook', 'EMAHook', 'EvaluateLoadedHook', 'FuseHook', 'LayerDecayOptimWrapperConstructor',
    'NonFiniteLossHook', 'ProgressBarHook', 'RawWeightsHook', 'SafeCheckpointHook', 'SeedHook',
    'UnreadableImagesHook'
]
