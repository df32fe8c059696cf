from .amp import AmpOptimWrapper
from .hooks import (
                    BatchNormStatisticsHook,
                    CostHook,
                    EMAHook,
                    EvaluateLoadedHook,
                    FullPrecisionHook,
                    FuseHook,
                    HeadClassesHook,
                    NonFiniteLossHook,
                    ProgressBarHook,
                    RawWeightsHook,
                    SafeCheckpointHook,
                    ScheduleHook,
                    SeedHook,
                    UnreadableImagesHook,
)
from .layer_decay import LayerDecayOptimWrapperConstructor
from .runner import ContinuingRunner

__all__ = [
    'AmpOptimWrapper', 'BatchNormStatisticsHook', 'ContinuingRunner', 'CostHook', 'EMAHook', 'EvaluateLoadedHook',
    'FullPrecisionHook', 'FuseHook', 'HeadClassesHook', 'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook',
    'ProgressBarHook', 'RawWeightsHook', 'SafeCheckpointHook', 'ScheduleHook', 'SeedHook', 'UnreadableImagesHook'
]
