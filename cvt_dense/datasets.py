"""The data sets, the samplers and the reader of images that programs import."""
from .engine import BalancedDataset, SeededInfiniteSampler, SeededSampler
from .images import open_image
from .pretraining import ImageDataset

__all__ = ['BalancedDataset', 'ImageDataset', 'SeededInfiniteSampler', 'SeededSampler', 'open_image']
