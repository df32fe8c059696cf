"""Read settings of a config's data sets before they are built."""
import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.fileio import list_from_file
from mmengine.registry import DATASETS


def leaf_datasets(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    if inner:
        for child in inner:
            yield from leaf_datasets(child)
    else:
        yield node


def dataset_class(dataset: dict[str, Any], cfg: Config) -> type:
    """Return the class that a data set's config names."""
    if not isinstance(dataset['type'], str):  # a pure-Python config
        return dataset['type']
    with DATASETS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        return registry.get(dataset['type'])


def metainfo(dataset: dict[str, Any], cfg: Config, key: str) -> Any:
    """Return an entry of a data set's ``metainfo``: the config's, or else the one of the data set's class.

    Args:
        dataset: config of the data set.
        cfg: whole config, whose scope finds the class.
        key: such as 'classes'.

    Returns:
        The value; where it is the path of a text file, the list of its lines.
    """
    value = (dataset.get('metainfo') or {}).get(key)
    if value is None:
        value = (getattr(dataset_class(dataset, cfg), 'METAINFO', None) or {}).get(key)
    return list_from_file(value) if isinstance(value, str) and os.path.isfile(value) else value


def reduces_zero_label(cfg: Config) -> bool:
    """Return whether the label maps of a config's test data count classes from 1, and 0 is ignored."""
    dataset = next(leaf_datasets(cfg.test_dataloader.dataset))
    default = inspect.signature(dataset_class(dataset, cfg)).parameters.get('reduce_zero_label')
    return bool(dataset.get('reduce_zero_label', default and default.default))


def class_names(dataset: Any) -> Sequence[str] | None:
    """Return the class names of a built data set."""
    return (getattr(dataset, 'metainfo', None) or {}).get('classes')
