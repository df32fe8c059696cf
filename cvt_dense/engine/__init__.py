from .amp import AutocastOptimWrapper
from .checkpoint import SafeCheckpointHook
from .hooks import (
    BatchNormStatisticsHook,
    CostHook,
    EMAHook,
    EvaluateLoadedHook,
    FuseHook,
    HeadClassesHook,
    NonFiniteLossHook,
    ProgressBarHook,
    ProgressiveSizeHook,
    RawWeightsHook,
    SeedHook,
    SummaryHook,
    UnreadableImagesHook,
)
from .layer_decay import LayerDecayOptimWrapperConstructor
from .runner import CvTRunner

__all__ = [
    'AutocastOptimWrapper', 'BatchNormStatisticsHook', 'CostHook', 'CvTRunner', 'EMAHook', 'EvaluateLoadedHook',
    'FuseHook', 'HeadClassesHook', 'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook', 'ProgressBarHook',
    'ProgressiveSizeHook', 'RawWeightsHook', 'SafeCheckpointHook', 'SeedHook', 'SummaryHook', 'UnreadableImagesHook'
]
