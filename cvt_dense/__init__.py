"""CvT (Convolutional vision Transformer) for classification and dense prediction on MMEngine.

Importing the package is cheap and registers nothing; a config's ``type='cvt_dense.CvT'`` makes
MMEngine import :mod:`cvt_dense.registry`, which loads the rest when it is needed.
"""
__version__ = '0.1.0'
