from .cvt import CvT

__all__ = ['CvT']
