from .batch_norm_statistics import BatchNormStatisticsHook
from .class_weights import ClassWeightsHook
from .early_stopping import EarlyStoppingHook
from .ema import EMAHook
from .fuse import FuseHook
from .head_classes import HeadClassesHook
from .non_finite import NonFiniteLossHook
from .progressive_size import ProgressiveSizeHook
from .raw_weights import RawWeightsHook
from .seed import SeedHook
from .summary import SummaryHook
from .unreadable_images import UnreadableImagesHook
from .val_loss import ValLossHook

__all__ = [
    'BatchNormStatisticsHook', 'ClassWeightsHook', 'EMAHook', 'EarlyStoppingHook', 'FuseHook', 'HeadClassesHook',
    'NonFiniteLossHook', 'ProgressiveSizeHook', 'RawWeightsHook', 'SeedHook', 'SummaryHook', 'UnreadableImagesHook',
    'ValLossHook'
]
