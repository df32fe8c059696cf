from .cvt import CvT
from .timm_backbone import TimmBackbone

__all__ = ['CvT', 'TimmBackbone']
