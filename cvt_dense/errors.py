"""Exceptions for mistakes that a user can correct.

A ``UserError`` is a mistake in a command line, a config or a file: tools print its message without a traceback. A
constructor or function that is called with a value that it does not allow raises ``ValueError``, as usual in
Python. ``CheckpointError`` is a ``ValueError`` too, for callers of the functions on weights.
"""
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import UnionType
from typing import Any, Literal, get_args, get_origin


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


def check_argument(name: str, value: Any, kind: Any) -> None:
    """Check an argument against its annotation: a type, a ``Literal`` or a union of these. Others are not checked.

    Raises:
        UserError: the value is none of them.
    """
    kinds = get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) not in (None, Literal) and any(
        get_origin(part) is Literal for part in get_args(kind)) else (kind, )
    choices = [choice for part in kinds if get_origin(part) is Literal for choice in get_args(part)]
    types = [get_origin(part) or part for part in kinds if get_origin(part) is not Literal]
    if Any in types or kind is inspect.Parameter.empty or not all(isinstance(part, type) for part in types):
        return
    fits = (int, float) if float in types else ()
    right = isinstance(value, (*types, *fits)) and all(  # a bool is an int, a text a sequence
        own in types or not isinstance(value, own) for own in (bool, str))
    if isinstance(value, dict) and dict[str, Any] in kinds and (numbers := [key for key in value if key != str(key)]):
        raise UserError(f'{name} has the keys {numbers}: allowed are texts.')
    if not right and not any(value is choice or value == choice for choice in choices):
        names = ['None' if part is type(None) else part.__name__ for part in types]
        raise UserError(f'{name}={value!r}: allowed is {" or ".join([*map(repr, choices), *names])}.')


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a public function, so that :func:`check_argument` checks what it is called with."""
    signature = inspect.signature(function)

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            check_argument(name, value, signature.parameters[name].annotation)
        return function(*args, **kwargs)

    return wrapper


def cause(error: Exception) -> str:
    """Return the type and text of an error on one line; a long text loses its middle, since the reason may end it."""
    text = ' '.join(str(error).split())
    return f'{type(error).__name__}: {text if len(text) <= 900 else f"{text[:300]} ... {text[-600:]}"}'


def listed(values: Iterable[Any], number: int = 5) -> str:
    """Return the first values for a message, and how many more there are: 'a, b and 3 more'; 'none' without any.

    Args:
        values: names, ids or paths.
        number: values that are written.
    """
    texts = [*map(str, values)]
    return ', '.join(texts[:number]) + (f' and {len(texts) - number} more' if len(texts) > number else '') or 'none'
