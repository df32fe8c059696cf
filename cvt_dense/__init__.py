"""CvT (Convolutional vision Transformer) for classification and dense prediction on MMEngine.

Importing the package is cheap, registers nothing and leaves the process as it was. A config's
``type='cvt_dense.CvT'`` makes MMEngine import :mod:`cvt_dense.registry`, which loads the rest when it is needed.
"""
from typing import TYPE_CHECKING, Any

from .recipes import recipe

if TYPE_CHECKING:
    from .models import CvT

__all__ = ['CvT', 'recipe']
__version__ = '0.4.0'


def __getattr__(name: str) -> Any:
    if name == 'CvT':  # its import takes seconds
        from .models import CvT
        return CvT
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
