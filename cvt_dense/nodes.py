"""Reading the dicts of a config, whether its types are texts or, in pure-Python configs, classes."""
from collections.abc import Iterator
from typing import Any


def type_name(node: Any) -> str:
    """The bare name of what ``node['type']`` names: 'CvT' for 'cvt_dense.CvT' and for the class; '' without a type."""
    named = node.get('type') if isinstance(node, dict) else None
    if named is None:
        return ''
    return named.split('.')[-1] if isinstance(named, str) else getattr(named, '__name__', type(named).__name__)


def walk(node: Any, path: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, dict) of every dict in ``node``, at any depth of dicts and lists; paths as --cfg-options writes them."""
    if isinstance(node, dict):
        yield path, node
    if isinstance(node, (dict, list, tuple)):
        for key, child in list(node.items() if isinstance(node, dict) else enumerate(node)):
            yield from walk(child, f'{path}.{key}' if path else str(key))


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Every dict in ``node``, at any depth of dicts and lists."""
    return (found for _, found in walk(node))
