from .batch_norm_statistics import BatchNormStatisticsHook
from .checkpoint import SafeCheckpointHook
from .cost import CostHook
from .ema import EMAHook
from .evaluate_loaded import EvaluateLoadedHook
from .full_precision import FullPrecisionHook
from .fuse import FuseHook
from .head_classes import HeadClassesHook
from .non_finite import NonFiniteLossHook
from .progress import ProgressBarHook
from .raw_weights import RawWeightsHook
from .schedule import ScheduleHook
from .seed import SeedHook
from .summary import SummaryHook
from .unreadable_images import UnreadableImagesHook

__all__ = [
    'BatchNormStatisticsHook', 'CostHook', 'EMAHook', 'EvaluateLoadedHook', 'FullPrecisionHook', 'FuseHook',
    'HeadClassesHook', 'NonFiniteLossHook', 'ProgressBarHook', 'RawWeightsHook', 'SafeCheckpointHook', 'ScheduleHook',
    'SeedHook', 'SummaryHook', 'UnreadableImagesHook'
]
