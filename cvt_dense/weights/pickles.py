"""Stand-ins for objects of MMEngine's checkpoints that are neither tensors nor plain Python values.

PyTorch's restricted unpickler (``torch.load(..., weights_only=True)``) creates tensors and plain Python values only.
MMEngine's logs need NumPy arrays, NumPy numbers and ``HistoryBuffer`` too. A pickle that names one of these gets an
inert stand-in instead of the real class: it checks the state that the file gives it, and the real object is built from
the checked state after the file has been read.
"""
import math
import pickle
import threading
import zipfile
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

_LOCK = threading.Lock()  # PyTorch keeps one list of allowed names for the whole process
_NUMBER_CODES = {np.dtype(code).str[1:] for code in '?bBhHiIlLqQefdFD'}


def _refuse(what: str) -> None:
    raise pickle.UnpicklingError(f'Refused: {what}.')


class _StandIn:
    """Base class of the objects that a pickle gets; ``value`` becomes the real object once the state was checked."""

    __hash__ = None  # no key of a dict and no member of a set, where it could not be replaced later
    value: Any = None


class _DType(_StandIn):
    """Replaces ``numpy.dtype``; only numbers are allowed, no objects, records or strings."""

    def __init__(self, code: str, align: bool = False, copy: bool = True):
        if code not in _NUMBER_CODES:
            _refuse(f'a NumPy dtype {code!r}')
        self.value = np.dtype(code)

    def __setstate__(self, state: tuple) -> None:
        if type(state[1]) is not str or state[1] not in '<>=|':
            _refuse(f'a NumPy byte order {state[1]!r}')
        self.value = self.value.newbyteorder(state[1])


class _Array(_StandIn):
    """Replaces ``numpy.ndarray``."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, fortran_order, data = state
        if (type(shape) is not tuple or any(type(size) is not int or size < 0 for size in shape)
                or type(dtype) is not _DType or type(data) is not bytes
                or len(data) != math.prod(shape) * dtype.value.itemsize):
            _refuse('a NumPy array whose shape, dtype and bytes do not fit each other')
        order = 'F' if fortran_order else 'C'
        self.value = np.frombuffer(data, dtype.value).reshape(shape, order=order).copy(order)


class _HistoryBuffer(_StandIn):
    """Replaces MMEngine's ``HistoryBuffer``; its table of functions, which the file names too, is left out."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        logs, counts, length = state['_log_history'], state['_count_history'], state['max_length']
        if type(length) is not int or any(
                type(rows) is not _Array or rows.value.ndim != 1 or rows.value.dtype.kind not in 'biuf'
                for rows in (logs, counts)):
            _refuse('a HistoryBuffer whose state is not two rows of numbers and a length')
        self.value = HistoryBuffer(logs.value, counts.value, length)


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    """Replace NumPy's function that creates an array whose state follows."""
    if kind is not _Array:
        _refuse(f'a NumPy array of type {kind!r}')
    return _Array()


def _scalar(dtype: Any, data: Any) -> np.generic:
    """Replace NumPy's function that creates a number."""
    if type(dtype) is not _DType or type(data) is not bytes or len(data) != dtype.value.itemsize:
        _refuse('a NumPy number whose dtype and bytes do not fit each other')
    return np.frombuffer(data, dtype.value)[0]


def _getattr(owner: Any, name: Any) -> None:
    """Replace ``getattr``, by which a pickled ``HistoryBuffer`` lists its functions."""
    if owner is not _HistoryBuffer:
        _refuse(f'getattr of {owner!r}')


def _empty(*arguments: Any) -> bytes:
    """Replace ``bytes``, by which a pickle of an older protocol writes those of an empty array."""
    return _refuse('bytes of a length') if arguments else b''


_STAND_INS = {
    'builtins.bytes': _empty,
    'builtins.getattr': _getattr,
    'mmengine.logging.history_buffer.HistoryBuffer': _HistoryBuffer,
    'numpy.dtype': _DType,
    'numpy.ndarray': _Array,
    'numpy.core.multiarray._reconstruct': _reconstruct,  # NumPy 1
    'numpy.core.multiarray.scalar': _scalar,
    'numpy._core.multiarray._reconstruct': _reconstruct,  # NumPy 2
    'numpy._core.multiarray.scalar': _scalar,
}


def load_pickle(path: Any, map_location: Any = None) -> Any:
    """Return the content of a ``torch.save`` file, read by PyTorch's restricted unpickler and this module's stand-ins.

    Tensors on the CPU are parts of the file that are read when they are used. So a run may open a checkpoint for its
    class names, for its shapes and for its weights, and reads the weights once.

    Names that the process itself has allowed by ``torch.serialization.add_safe_globals`` are allowed here too.

    Raises:
        pickle.UnpicklingError: the pickle needs anything else.
    """
    with _LOCK:
        allowed = {entry[1] if isinstance(entry, tuple) else f'{entry.__module__}.{entry.__qualname__}'
                   for entry in torch.serialization.get_safe_globals()}
        stand_ins = [(stand_in, name) for name, stand_in in _STAND_INS.items() if name not in allowed]
        with torch.serialization.safe_globals(stand_ins):
            loaded = torch.load(path, map_location=map_location, weights_only=True, mmap=zipfile.is_zipfile(path))
    return _replace_stand_ins(loaded, {})


def _replace_stand_ins(value: Any, done: dict[int, Any]) -> Any:
    """Return ``value`` with the real object in place of each stand-in; dicts and lists are changed in place."""
    if isinstance(value, _StandIn):
        if value.value is None:
            _refuse('an object without a state')
        return value.value
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value
    if isinstance(value, dict):
        for key, item in value.items():
            value[key] = _replace_stand_ins(item, done)
    elif isinstance(value, list):
        value[:] = [_replace_stand_ins(item, done) for item in value]
    elif type(value) is tuple:
        done[id(value)] = tuple(_replace_stand_ins(item, done) for item in value)
    return done[id(value)]
