"""CvT (Convolutional vision Transformer) for classification and dense prediction on MMEngine.

Importing the package is cheap and registers nothing; a config's ``type='cvt_dense.CvT'`` makes
MMEngine import :mod:`cvt_dense.registry`, which loads the rest when it is needed.

It only puts two finders on ``sys.meta_path``, which costs microseconds. One lets configs inherit the recipes
(:mod:`cvt_dense.recipes`). The other: PyPI's torchvision, built for CUDA, can then
be imported beside a CPU-only torch, whoever imports it. On such a machine ``tools/setup.sh`` has the virtual
environment import this package at every start of Python, by a ``.pth`` file, for programs that import torchvision
before any config is read, as mmseg's own ``tools/train.py`` does.
"""
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .recipes import recipe, teach_mmengine

if TYPE_CHECKING:
    from .models import CvT

__all__ = ['CvT', 'declare_torchvision_ops', 'recipe']
__version__ = '0.1.0'


def __getattr__(name: str) -> Any:
    if name == 'CvT':  # its import takes seconds
        from .models import CvT
        return CvT
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def declare_torchvision_ops() -> bool:
    """Lets PyPI's torchvision wheel (built for CUDA) be imported beside a CPU-only torch.

    There its compiled operators cannot load, and ``import torchvision`` (which timm and mmseg do)
    dies with ``operator torchvision::nms does not exist``. Only the two schemas are needed for the
    import; nothing in this project calls the operators.

    Returns:
        Whether torchvision is installed and its own operators do not load, so that this was needed.
    """
    import torch
    spec = importlib.util.find_spec('torchvision')
    if spec is None:
        return False
    for library in Path(spec.origin).parent.glob('_C*'):
        try:
            torch.ops.load_library(library)  # what torchvision does next; loading it twice does no harm
            return False
        except OSError:
            pass
    for schema in ('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
                   'qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'):
        try:
            torch.library.define(f'torchvision::{schema.split("(")[0]}', schema[schema.index('('):])
        except RuntimeError:
            pass  # declared before, by an earlier call
    return True


class _BeforeTorchvision:

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == 'torchvision':
            sys.meta_path.remove(cls)
            declare_torchvision_ops()


sys.meta_path.insert(0, _BeforeTorchvision)
teach_mmengine()  # the other finder: configs may inherit from cvt_dense::NAME.py
