"""What the pickle of a checkpoint may hold beside tensors and plain Python values.

PyTorch's restricted unpickler (``weights_only=True``) calls nothing that is not on its list. MMEngine's own
checkpoints need a few names more, for logged numbers and data set meta. None of them is given as it is: a
file must not reach ``getattr`` (from which everything can be reached), a dtype whose flags turn bytes into
pointers, or a table that its class shares with the whole process.
"""
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer


def _refuse(what: str) -> None:
    raise pickle.UnpicklingError(f'Refused: {what}.')


class _History(HistoryBuffer):
    """Becomes a ``HistoryBuffer`` of two rows of numbers; anything else that its state holds is dropped."""

    def __setstate__(self, state: Any) -> None:
        try:
            values = {key: state[key] for key in ('max_length', '_log_history', '_count_history')}
        except (TypeError, KeyError):
            _refuse('a HistoryBuffer without its numbers')
        if type(values['max_length']) is not int or any(
                not isinstance(values[key], np.ndarray) or values[key].dtype.kind not in 'biuf'
                for key in ('_log_history', '_count_history')):
            _refuse('a HistoryBuffer that holds something else than numbers')
        self._set_default_statistics()  # not the file's: the table belongs to the class
        self.__dict__.update(values)
        self.__class__ = HistoryBuffer


def _statistic(owner: Any, name: Any) -> None:
    """Stands where a pickled ``HistoryBuffer`` lists its statistics as ``getattr(HistoryBuffer, 'mean')``."""
    if owner is not _History or type(name) is not str or name.startswith('_'):
        _refuse(f'getattr of {owner!r} and {name!r}')


# Only dtypes whose state NumPy never takes from a file, as it does for strings, records and objects.
_PLAIN_KINDS = {np.dtype(kind).str[1:]: np.dtype(kind) for kind in '?bBhHiIlLqQefdgFDG'}


def _plain_dtype(kind: Any, align: Any = False, copy: Any = True) -> np.dtype:
    if kind not in _PLAIN_KINDS:
        _refuse(f'an array of dtype {kind!r}, which is no number')
    return _PLAIN_KINDS[kind]


def _empty_array(kind: Any, shape: Any, dtype: Any) -> np.ndarray:
    if kind is not np.ndarray:
        _refuse(f'an array of type {kind!r}')
    return np.empty(0)  # its state, which follows, brings shape, dtype and numbers


def _number(dtype: Any, value: Any) -> Any:
    if not any(dtype is plain for plain in _PLAIN_KINDS.values()) or type(value) is not bytes:
        _refuse(f'a NumPy scalar of {dtype!r}')
    return np.frombuffer(value, dtype, 1)[0]


def _named(name: str, function: Callable) -> Callable:
    """The function under another name, by which the unpickler looks it up (torch 2.4 knows no other way)."""

    def stand_in(*args):
        return function(*args)

    stand_in.__module__, _, stand_in.__qualname__ = name.rpartition('.')
    stand_in.__name__ = stand_in.__qualname__
    return stand_in


_History.__module__, _History.__qualname__ = HistoryBuffer.__module__, HistoryBuffer.__qualname__
_History.__name__ = HistoryBuffer.__name__
_STAND_INS = [
    _History, np.ndarray, *{type(dtype) for dtype in _PLAIN_KINDS.values()},
    _named('builtins.getattr', _statistic), _named('numpy.dtype', _plain_dtype),
    *(_named(f'numpy.{core}.multiarray.{name}', function) for core in ('core', '_core')  # NumPy 1 and 2
      for name, function in (('_reconstruct', _empty_array), ('scalar', _number))),
]


def _full_name(allowed: Any) -> str:
    return allowed[1] if isinstance(allowed, tuple) else f'{allowed.__module__}.{allowed.__qualname__}'


@contextmanager
def stand_ins() -> Iterator[None]:
    """Inside, ``torch.load(..., weights_only=True)`` reads MMEngine's checkpoints too, by our stand-ins.

    What others have allowed by ``torch.serialization.add_safe_globals`` stays allowed, except under the names
    of the stand-ins: MMEngine allows ``getattr`` itself.
    """
    before = torch.serialization.get_safe_globals()
    names = {_full_name(allowed) for allowed in _STAND_INS}
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals([*(a for a in before if _full_name(a) not in names), *_STAND_INS])
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
