"""Read and change settings of a config's data sets before they are built."""
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.fileio import list_from_file
from mmengine.fileio.backends import backends
from mmengine.registry import DATASETS, Registry

from ..errors import UserError
from .nodes import dicts, type_name


def leaf_datasets(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    if inner:
        for child in inner:
            yield from leaf_datasets(child)
    else:
        yield node


def class_of(node: dict[str, Any], cfg: Config, registry: Registry = DATASETS) -> type:
    """Return the class that a node of ``cfg`` names, in the scope of ``cfg``; of a data set or of ``registry``."""
    if not isinstance(node['type'], str):  # a pure-Python config
        return node['type']
    with registry.switch_scope_and_registry(cfg.get('default_scope')) as scoped:
        return scoped.get(node['type'])


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
        value = (getattr(class_of(dataset, cfg), 'METAINFO', None) or {}).get(key)
    return list_from_file(value) if isinstance(value, str) and os.path.isfile(value) else value


def reduces_zero_label(cfg: Config) -> bool:
    """Return whether the label maps of a config's test data count classes from 1, and 0 is ignored."""
    dataset = next(leaf_datasets((cfg.get('test_dataloader') or {}).get('dataset') or {}))
    if not dataset:
        return False
    default = inspect.signature(class_of(dataset, cfg)).parameters.get('reduce_zero_label')
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
                if key != 'type':  # of a pure-Python config: once it is set, MMEngine cannot dump it
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


def set_file_backend(cfg: Config, backend_args: dict[str, Any]) -> None:
    """Make every data set of ``cfg`` read images and label maps through one of MMEngine's file backends.

    Annotation files too, of MMDetection and MMSegmentation, unless the backend only looks up keys, as LMDB does.

    Args:
        cfg: changed in place, except where a data set or transform has ``backend_args`` of its own.
        backend_args: arguments of ``mmengine.fileio.get_file_backend``.
    """
    backend = backends.get(backend_args.get('backend', 'local'))  # MMEngine reports one that it does not have
    keys = ('data_prefix', 'ann_file') if hasattr(backend, 'get_local_path') else ()
    parts = [cfg[key] for key in cfg if key.endswith(('_dataloader', '_evaluator', '_pipeline'))]
    for node in dicts(parts):
        reads = type_name(node) in ('LoadImageFromFile', 'LoadAnnotations', 'ImageDataset')
        if (reads or any(key in node for key in keys)) and node.get('backend_args') is None:
            node['backend_args'] = backend_args


def test_metainfo(cfg: Config) -> dict[str, Any]:
    """Return classes and palette of the config's test data set, as far as it gives them."""
    dataset = next(leaf_datasets((cfg.get('test_dataloader') or {}).get('dataset') or {}), None)
    if not dataset:
        return {}
    found = {key: metainfo(dataset, cfg, key) for key in ('classes', 'palette')}
    return {key: value for key, value in found.items() if isinstance(value, (list, tuple))}


def set_classes(cfg: Config, content: Mapping[str, Any]) -> None:
    """Give the test data's class folders the numbers that they have in a classifier's checkpoint or exported file.

    ``model.num_classes`` is the checkpoint's too, where the config leaves it open.

    Args:
        cfg: config of a classifier, changed in place.
        content: content of the checkpoint, or metadata of the exported file.

    Raises:
        UserError: there are fewer than two class folders.
    """
    from ..weights import classes_of  # imports PyTorch
    classes, weights = classes_of(content), content.get('state_dict', content)
    if cfg.model.get('num_classes') is None:
        cfg.model.num_classes = len(weights['head.weight']) if 'head.weight' in weights else len(classes) or None
    loader = cfg.get('test_dataloader') or {}
    for dataset in leaf_datasets(loader.get('dataset') or {}) if classes else ():
        about = dataset.get('metainfo') or {}
        if not about.get('classes') and set(classes) & set(_class_folders(dataset) or ()):  # names may be other words
            dataset['metainfo'] = dict(about, classes=classes)
    if cfg.model.num_classes is None:
        _count_class_folders(cfg)


def count_class_folders(cfg: Config) -> None:
    """Set the ``num_classes`` of a classifier that gives none to the number of class folders of its training set.

    The validation or test set counts where there is no training set; without any of them the number stays open.

    Raises:
        UserError: there are fewer than two folders, or the config names no list of classes that there is.
    """
    if (cfg.get('model') or {}).get('num_classes') is None and is_classifier(cfg):
        _count_class_folders(cfg)


def _count_class_folders(cfg: Config) -> None:
    for stage in ('train', 'val', 'test'):
        classes = _class_folders(next(leaf_datasets((cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {})))
        if classes is None:
            continue
        if len(classes) < 2:
            raise UserError(f'{stage}_dataloader has {len(classes)} class folders {classes}; a classifier needs two or '
                            'more. Correct data_root, or give --data-root DIR.')
        cfg.model.num_classes = len(classes)
        return


def is_classifier(cfg: Config) -> bool:
    """Return whether a config's model is a classifier of this package, or of a subclass."""
    if cfg.get('default_scope') in ('mmdet', 'mmseg') or not type_name(cfg.get('model')):
        return False
    from mmengine.registry import MODELS

    from ..models.task import task_of  # imports PyTorch
    return task_of(class_of(cfg.model, cfg, MODELS)) == 'classification'


def _class_folders(dataset: dict[str, Any]) -> Sequence[str] | None:
    """Return the classes of a data set of class folders by number, or None for another one or without its files."""
    root = os.path.join(dataset.get('data_root') or '', dataset.get('split') or '')
    if type_name(dataset) != 'ImageDataset' or dataset.get('ann_file') or not os.path.exists(root):
        return None
    from ..pretraining.listing import find_classes, read_classes  # imports PyTorch
    return read_classes((dataset.get('metainfo') or {}).get('classes')) or find_classes(root)
