from .. import compat  # noqa: F401  before timm
from .image_dataset import ImageDataset
from .samplers import SeededSampler

__all__ = ['ImageDataset', 'SeededSampler']
