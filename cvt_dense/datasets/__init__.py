from .corruption import CorruptImage
from .image_dataset import ImageDataset, open_image
from .samplers import SeededInfiniteSampler, SeededSampler

__all__ = ['CorruptImage', 'ImageDataset', 'SeededInfiniteSampler', 'SeededSampler', 'open_image']
