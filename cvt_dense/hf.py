"""CvT in transformers: see :mod:`cvt_dense.integrations.hf`."""
from .integrations.hf import CvtBackbone, CvtBackboneConfig

__all__ = ['CvtBackbone', 'CvtBackboneConfig']
