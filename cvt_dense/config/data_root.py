"""Where the data sets of a config read from: another folder, a file of class names, another file backend."""
import os
from typing import Any

from mmengine import fileio
from mmengine.config import Config
from mmengine.fileio.backends import backends

from ..errors import UserError
from .walk import dicts, type_name


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


def read_class_names(cfg: Config) -> None:
    """Put the class names into ``cfg`` where a data set names a file of them, so that the config can go elsewhere.

    Raises:
        UserError: there is no such file.
    """
    loaders = [cfg[key] for key in cfg if key.endswith('_dataloader')]
    for node in dicts(loaders):
        file = (node.get('metainfo') or {}).get('classes')
        if isinstance(file, str):
            if not os.path.isfile(file):
                raise UserError(f'metainfo.classes={file!r} is no file; give names, or a file with one a line.')
            lines = fileio.list_from_file(file, encoding='utf-8-sig')  # without a byte order mark
            node['metainfo']['classes'] = [line.strip() for line in lines if line.strip()]


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
