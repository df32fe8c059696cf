"""Exceptions for mistakes that a user can correct.

A ``UserError`` is a mistake in a command line, a config or a file: tools print its message without a traceback. A
constructor or function that is called with a value that it does not allow raises ``ValueError``, as usual in
Python. ``CheckpointError`` is a ``ValueError`` too, for callers of the functions on weights.
"""
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class UserError(Exception):
    """A mistake in a command line, a config or a file; the text names the value, what is allowed, and what to do."""


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be read, or that is not this network's."""


@contextmanager
def refusals_of(setting: str) -> Iterator[None]:
    """Raise a ``UserError`` that names a setting of a config if what is built from it refuses a value.

    Args:
        setting: its dotted name.
    """
    try:
        yield
    except UserError:
        raise
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise UserError(f'{setting} is refused: {type(error).__name__}: {error} (CVT_DENSE_TRACEBACK=1 shows '
                        'where.)') from error


def listed(values: Iterable[Any], number: int = 5) -> str:
    """Return the first values for a message, and how many more there are: 'a, b and 3 more'; 'none' without any.

    Args:
        values: names, ids or paths.
        number: values that are written.
    """
    texts = [*map(str, values)]
    return ', '.join(texts[:number]) + (f' and {len(texts) - number} more' if len(texts) > number else '') or 'none'
