from .image_dataset import ImageDataset, open_image
from .samplers import SeededSampler

__all__ = ['ImageDataset', 'SeededSampler', 'open_image']
