from ..images import open_image
from .balanced import BalancedDataset
from .image_dataset import ImageDataset
from .samplers import SeededInfiniteSampler, SeededSampler

__all__ = ['BalancedDataset', 'ImageDataset', 'SeededInfiniteSampler', 'SeededSampler', 'open_image']
