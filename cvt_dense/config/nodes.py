"""Read the dicts of a config, whose types are texts or, in pure-Python configs, classes."""
from collections.abc import Iterator
from typing import Any


def type_name(node: Any) -> str:
    """Return the bare name of a dict's ``type``: 'CvT' for 'cvt_dense.CvT' and for the class; '' without a type."""
    named = (node.get('type') if isinstance(node, dict) else None) or ''
    return named.split('.')[-1] if isinstance(named, str) else getattr(named, '__name__', type(named).__name__)


def walk(node: Any, path: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path, as --cfg-options writes it, and the dict of every dict at any depth of dicts and lists."""
    if isinstance(node, dict):
        yield path, node
    if isinstance(node, (dict, list, tuple)):
        for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            yield from walk(child, f'{path}.{key}' if path else str(key))


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict at any depth of dicts and lists."""
    return (found for _, found in walk(node))


def values(node: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the path, as --cfg-options writes it, and the value of every entry at any depth of dicts and lists."""
    for key, child in node.items() if isinstance(node, dict) else enumerate(node):
        here = f'{path}.{key}' if path else str(key)
        yield here, child
        if isinstance(child, (dict, list, tuple)):
            yield from values(child, here)
