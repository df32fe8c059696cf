from . import variants  # noqa: F401  (registers the further types of attn_cfg)
from .cvt import CvT
from .timm_backbone import TimmBackbone

__all__ = ['CvT', 'TimmBackbone']
