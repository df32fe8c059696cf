"""Read a config file, with overrides and another data root."""
import os
from typing import Any

from mmengine.config import Config
from mmengine.fileio.backends import backends

from ..errors import UserError
from .data_sets import redirect_data_root
from .nodes import dicts, type_name
from .options import merge_options
from .published import fetch, is_published, read_published


def read_config(file: str, options: dict[str, Any] | None = None, data_root: str | None = None) -> Config:
    """Return the config in a file, with some settings overridden.

    Args:
        file: config file, or a published model: a folder, or ``hf://OWNER/NAME``.
        options: settings to override, by their dotted names.
        data_root: folder that takes the place of the config's data root; None keeps it.

    Raises:
        UserError: the file does not exist, an option has no effect, or ``data_root`` is no folder.
    """
    if is_published(file):
        cfg = read_published(fetch(file))
    elif os.path.isfile(file):
        cfg = Config.fromfile(file)
    else:
        raise UserError(f'config file {file!r} does not exist. Give a file of configs/ or one of your own.')
    merge_options(cfg, options or {})
    if data_root:
        if not os.path.isdir(data_root):
            raise UserError(f'--data-root {data_root!r} is not a folder. Give the folder of the data set.')
        redirect_data_root(cfg, data_root)
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    return cfg


def check_exists(checkpoint: str) -> None:
    """Raise ``UserError`` if a checkpoint does not exist; URLs are not checked."""
    if '://' not in checkpoint and not os.path.exists(checkpoint):
        raise UserError(f'checkpoint {checkpoint!r} does not exist. Give the path or URL of a checkpoint.')


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
