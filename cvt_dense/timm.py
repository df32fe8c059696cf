"""CvT in timm: see :mod:`cvt_dense.integrations.timm`."""
from .integrations.timm import cvt_13, cvt_21, cvt_nano, cvt_w24

__all__ = ['cvt_13', 'cvt_21', 'cvt_nano', 'cvt_w24']
