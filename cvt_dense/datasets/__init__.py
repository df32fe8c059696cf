from .balanced import BalancedDataset
from .corruption import CorruptImage
from .image_dataset import ImageDataset
from .samplers import SeededInfiniteSampler, SeededSampler
from .transforms import open_image

__all__ = ['BalancedDataset', 'CorruptImage', 'ImageDataset', 'SeededInfiniteSampler', 'SeededSampler', 'open_image']
