"""Operators of mmcv in PyTorch, for an mmcv that was installed without its compiled ones.

``python -m cvt_dense.ops`` places the file ``mmcv/_ext.py`` into the environment, which takes its operators from here.
Importing this package imports nothing but PyTorch and torchvision.
"""
from collections.abc import Callable
from typing import Any

from . import boxes, deformable, losses

OPERATORS = {**vars(boxes), **vars(deformable), **vars(losses)}


def operator(name: str) -> Callable[..., Any]:
    """Return the function that ``mmcv._ext`` has under a name.

    mmcv looks every name up when ``mmcv.ops`` is imported, but most networks call a few of them only. A name that has
    no implementation here therefore gives a function that raises an error when it is called.

    Raises:
        AttributeError: ``name`` is one of Python's own, such as ``__path__``.
        NotImplementedError: raised by the returned function, if the operator is not implemented here.
    """
    if name.startswith('__'):
        raise AttributeError(name)
    if name in ('get_compiler_version', 'get_compiling_cuda_version'):  # mmcv's report on the environment asks for them
        return lambda: 'none (cvt_dense.ops)'

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f'The operator {name!r} needs mmcv with compiled operators.')

    return OPERATORS.get(name, missing)
