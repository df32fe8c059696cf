from .amp import AutocastOptimWrapper
from .balanced import BalancedDataset
from .checkpoint import ResumeHook, SafeCheckpointHook, StopHook
from .data_sets import SkippingPipeline
from .hooks.early_stopping import EarlyStoppingHook
from .hooks.ema import EMAHook
from .hooks.head_classes import HeadClassesHook
from .hooks.label_maps import SaveLabelMapsHook
from .hooks.non_finite import NonFiniteLossHook
from .hooks.progressive_size import ProgressiveSizeHook
from .hooks.raw_weights import RawWeightsHook
from .hooks.seed import SeedHook
from .hooks.summary import SummaryHook
from .hooks.unreadable_images import UnreadableImagesHook
from .hooks.val_loss import ValLossHook
from .layer_decay import LayerDecayOptimWrapperConstructor
from .runner import CvTRunner
from .samplers import SeededInfiniteSampler, SeededSampler

__all__ = [
    'AutocastOptimWrapper', 'BalancedDataset', 'CvTRunner', 'EMAHook', 'EarlyStoppingHook', 'HeadClassesHook',
    'LayerDecayOptimWrapperConstructor', 'NonFiniteLossHook', 'ProgressiveSizeHook', 'RawWeightsHook', 'ResumeHook',
    'SafeCheckpointHook', 'SaveLabelMapsHook', 'SeedHook', 'SeededInfiniteSampler', 'SeededSampler',
    'SkippingPipeline', 'StopHook', 'SummaryHook', 'UnreadableImagesHook', 'ValLossHook'
]
