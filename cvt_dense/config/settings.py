"""Read and change settings of a config before anything is built.

Types are texts or, in pure-Python configs, classes.
"""
import inspect
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine import fileio
from mmengine.config import Config
from mmengine.fileio.backends import backends
from mmengine.registry import DATASETS, Registry

from ..console import prints_to_log
from ..errors import UserError


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


def class_of(node: dict[str, Any], cfg: Config, registry: Registry = DATASETS) -> type:
    """Return the class that a node of ``cfg`` names, in the scope of ``cfg``; of a data set or of ``registry``."""
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

    Returns:
        The value; where it is the path of a text file, the list of its lines.
    """
    value = (dataset.get('metainfo') or {}).get(key)
    if value is None:
        value = (getattr(class_of(dataset, cfg), 'METAINFO', None) or {}).get(key)
    return read_names(value) if isinstance(value, str) and os.path.isfile(value) else value


def read_names(file: str) -> list[str]:
    """Return the lines of a file of names, without a byte order mark and empty lines."""
    lines = fileio.list_from_file(file, encoding='utf-8-sig')
    return [line.strip() for line in lines if line.strip()]


def read_classes(classes: Sequence[str] | str | None) -> Sequence[str] | None:
    """Return class names, where they may be given as a file of them.

    Raises:
        UserError: there is no such file.
    """
    if isinstance(classes, str):
        if not os.path.isfile(classes):
            raise UserError(f'metainfo.classes={classes!r} is no file; give names, or a file with one a line.')
        classes = read_names(classes)
    return classes


def read_class_names(cfg: Config) -> None:
    """Put the class names into ``cfg`` where a data set names a file of them, so that the config can go elsewhere."""
    for node in dicts([cfg[key] for key in cfg if key.endswith('_dataloader')]):
        if isinstance((node.get('metainfo') or {}).get('classes'), str):
            node['metainfo']['classes'] = metainfo(node, cfg, 'classes')


def reduces_zero_label(cfg: Config) -> bool:
    """Return whether the label maps of a config's test data count classes from 1, and 0 is ignored."""
    datasets = datasets_of(cfg, 'test')
    if not datasets:
        return False
    dataset = datasets[0]
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


def is_remote(node: dict[str, Any]) -> bool:
    """Return whether a data set or transform reads through another file backend than that of local files."""
    return bool(node.get('backend_args')) and node['backend_args'].get('backend') != 'local'


def test_metainfo(cfg: Config) -> dict[str, Any]:
    """Return classes and palette of the config's test data set, as far as it gives them."""
    entries = {key: metainfo(dataset, cfg, key) for dataset in datasets_of(cfg, 'test')[:1]
               for key in ('classes', 'palette')}
    return {key: value for key, value in entries.items() if isinstance(value, (list, tuple))}


def is_scored(cfg: Config, stage: str) -> bool:
    """Return whether a stage has an evaluator that computes scores, and does not only write results down."""
    return any(not node.get('format_only') for node in dicts(cfg.get(f'{stage}_evaluator')) if 'type' in node)


def use_amp(cfg: Config, dtype: str) -> None:
    """Train in mixed precision.

    Args:
        cfg: changed in place.
        dtype: 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or 'default', which is 'fp16' for detectors,
            because compiled mmcv has no operators for bfloat16, and 'bf16' for others.
    """
    detects = 'mmdet' in (cfg.get('default_scope'), str(cfg.model.type).split('.')[0])
    if dtype == 'fp16' or dtype == 'default' and detects:
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    else:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')


def use_autocast(cfg: Config, dtype: str) -> None:
    """Run the network of a config under PyTorch's autocast.

    Args:
        cfg: changed in place.
        dtype: 'bf16' or 'fp16'.
    """
    cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype=dtype)
