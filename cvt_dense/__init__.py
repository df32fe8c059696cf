"""CvT (Convolutional vision Transformer) for classification and dense prediction on MMEngine.

``train``, ``test``, ``load``, ``predict`` and ``export`` are what the tools do, from Python. Importing the package is
cheap, registers nothing and leaves the process as it was. A config's ``type='cvt_dense.CvT'`` makes MMEngine import
:mod:`cvt_dense.registry`, which loads the rest when it is needed.
"""
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .recipes import recipe

if TYPE_CHECKING:
    from .inference import load, predict
    from .inference.export import export
    from .launch.start import test, train
    from .models import CvT

__all__ = ['CvT', 'export', 'load', 'predict', 'recipe', 'test', 'train']
__version__ = '0.4.0'

# Where the names are whose imports take seconds.
LAZY = {'CvT': 'models', 'export': 'inference.export', 'load': 'inference', 'predict': 'inference',
        'test': 'launch.start', 'train': 'launch.start'}


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(import_module(f'.{LAZY[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
