from .hooks import (
                    CostHook,
                    EMAHook,
                    EvaluateLoadedHook,
                    FuseHook,
                    HeadClassesHook,
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
    'ContinuingRunner', 'CostHook', 'EMAHook', 'EvaluateLoadedHook', 'FuseHook', 'HeadClassesHook',
    'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook', 'ProgressBarHook', 'RawWeightsHook',
    'SafeCheckpointHook', 'SeedHook', 'UnreadableImagesHook'
]
