from .balanced import BalancedDataset
from .image_dataset import ImageDataset
from .samplers import SeededInfiniteSampler, SeededSampler
from .transforms import open_image

__all__ = ['BalancedDataset', 'ImageDataset', 'SeededInfiniteSampler', 'SeededSampler', 'open_image']
