"""CvT in other libraries. Users import :mod:`cvt_dense.timm` and :mod:`cvt_dense.hf`."""
