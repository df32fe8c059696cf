from .image_dataset import ImageDataset
from .samplers import SeededSampler

__all__ = ['ImageDataset', 'SeededSampler']
