"""Read settings of a config's data sets before they are built."""
import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.fileio import list_from_file
from mmengine.registry import DATASETS

from ..errors import UserError
from .nodes import dicts


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


def redirect_data_root(cfg: Config, data_root: str) -> str:
    """Make every data set and evaluator of ``cfg`` read from ``data_root``, at any depth of wrappers.

    Each ``data_root`` in ``cfg`` is replaced, and so is every other string of a ``*_dataloader`` or
    ``*_evaluator`` that starts with one of the old ones (such as an evaluator's ``ann_file``). Of several roots, such
    as 'd/train' and 'd/valid', the folder of all of them is replaced, 'd'; of 'd' and 'e' the current folder.

    Returns:
        The folder that was replaced.

    Raises:
        UserError: ``cfg`` names no data root, or several, some of them absolute, without a folder of all of them.
    """
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator')) and cfg[key] is not None]
    top = (cfg.get('data_root') or '').rstrip('/')  # a variable of the file; a data set may have another root
    old = sorted({node['data_root'].rstrip('/') for node in dicts(parts) if node.get('data_root')} or {top} - {''})
    common = os.path.dirname(os.path.commonprefix([f'{root}/' for root in old]))
    moved = {root: data_root.rstrip('/') for root in (common, top) if root.strip('/')}
    if not common.strip('/'):
        if not old or any(map(os.path.isabs, old)):
            raise UserError(f'{cfg.filename!r} has the data roots {old}, which are in no folder that {data_root!r} '
                            'could replace; give the paths with --cfg-options.')
        moved |= {root: os.path.join(data_root, root) for root in old}  # the current folder is replaced

    def redirect(value: Any, names: bool = False) -> Any:
        """Return ``value`` with its paths redirected. With ``names``, the strings of lists are names of classes."""
        if isinstance(value, dict):
            for key, child in value.items():
                value[key] = redirect(child, names or key in ('metainfo', 'classes'))
            return value
        if isinstance(value, (list, tuple)):
            return type(value)(child if names and isinstance(child, str) else redirect(child, names) for child in value)
        if isinstance(value, str):
            for prefix, target in moved.items():
                if f'{value}/'.startswith(f'{prefix}/'):
                    return target + value[len(prefix):]
        return value

    redirect(parts)
    if cfg.get('data_root'):
        cfg.data_root = redirect(cfg.data_root)
    return common or '.'
