from .. import compat  # noqa: F401  before timm
from .backbones import CvT

__all__ = ['CvT']
