"""Applies :mod:`cvt_dense.compat` to programs that import torchvision before this package.

mmseg's own ``tools/train.py`` is one: beside a CPU-only torch it would die in ``import torchvision``
(see :func:`cvt_dense.compat.declare_torchvision_ops`) before any config is read. On such a machine
``tools/setup.sh`` therefore has the virtual environment import this module at every start of Python, by
a ``.pth`` file. It only puts a finder on ``sys.meta_path``, which costs microseconds; torch is imported
when torchvision is about to be.
"""
import sys


class _BeforeTorchvision:

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == 'torchvision':
            sys.meta_path.remove(cls)
            from . import compat  # noqa: F401  its import does the work


sys.meta_path.insert(0, _BeforeTorchvision)
