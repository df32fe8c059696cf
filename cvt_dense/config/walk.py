"""Walk through a config, and find the classes that its nodes name.

Types are texts or, in pure-Python configs, classes.
"""
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmengine.registry import DATASETS, Registry

from ..console import prints_to_log


def type_name(node: Any) -> str:
    """Return the bare name of a dict's ``type``: 'CvT' for 'cvt_dense.CvT' and for the class; '' without a type."""
    named = (node.get('type') if isinstance(node, dict) else None) or ''
    return named.split('.')[-1] if isinstance(named, str) else getattr(named, '__name__', type(named).__name__)


def values(node: Any, path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield the path, as --cfg-options writes it, and the value of every entry at any depth of dicts and lists."""
    if isinstance(node, (dict, list, tuple)):
        children = node.items() if isinstance(node, dict) else enumerate(node)
        for key, child in list(children):
            child_path = f'{path}.{key}' if path else str(key)
            yield child_path, child
            yield from values(child, child_path)


def walk(node: Any, path: str = '') -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the dict of every dict at any depth of dicts and lists, first ``node`` itself."""
    yield from ((key, child) for key, child in [(path, node), *values(node, path)] if isinstance(child, dict))


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every dict at any depth of dicts and lists, first ``node`` itself."""
    return (child for _, child in walk(node))


def leaf_datasets(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    for child in inner:
        yield from leaf_datasets(child)
    if not inner:
        yield node


def datasets_of(cfg: Config, stage: str) -> list[dict[str, Any]]:
    """Return the configs of a stage's data sets inside any wrappers; without such a loader, an empty list.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.
    """
    dataset = (cfg.get(f'{stage}_dataloader') or {}).get('dataset')
    return list(leaf_datasets(dataset)) if dataset else []


def class_of(node: dict[str, Any], cfg: Config, registry: Registry = DATASETS) -> type | None:
    """Return the class that ``node['type']`` names in the scope of ``cfg``, or None if ``registry`` lacks it."""
    if not isinstance(node['type'], str):  # a pure-Python config
        return node['type']
    with prints_to_log(), registry.switch_scope_and_registry(cfg.get('default_scope')) as scoped:
        return scoped.get(node['type'])  # imports its package, which prints then


def metainfo(dataset: dict[str, Any], cfg: Config, key: str) -> Any:
    """Return an entry of a data set's ``metainfo``: the config's, or that of the data set's class.

    Args:
        dataset: config of the data set.
        cfg: whole config, whose scope finds the class.
        key: such as 'classes'.
    """
    value = (dataset.get('metainfo') or {}).get(key)
    return (getattr(class_of(dataset, cfg), 'METAINFO', None) or {}).get(key) if value is None else value


def is_remote(node: dict[str, Any]) -> bool:
    """Return whether a data set or transform reads through another file backend than that of local files."""
    return bool(node.get('backend_args')) and node['backend_args'].get('backend') != 'local'
