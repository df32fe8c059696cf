from .. import compat  # before timm
from .image_dataset import ImageDataset
from .samplers import SeededSampler

compat.allow_posterize_to_black()

__all__ = ['ImageDataset', 'SeededSampler']
