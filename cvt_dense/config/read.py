"""Read a config file, with overrides and another data root."""
import os
from typing import Any

from mmengine.config import Config

from ..errors import UserError
from .options import merge_options
from .published import SCOPES, fetch, is_published, read_published
from .settings import read_class_names, redirect_data_root, set_file_backend


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
    kind = (cfg.get('model') or {}).get('type')
    package = getattr(kind, '__module__', '').split('.')[0]
    if cfg.get('default_scope') is None and package in SCOPES:  # pure Python: MMEngine's classes build others by name
        cfg.default_scope = package
    merge_options(cfg, options or {})
    if data_root:
        if not os.path.isdir(data_root):
            raise UserError(f'--data-root {data_root!r} is not a folder. Give the folder of the data set.')
        redirect_data_root(cfg, data_root)
    read_class_names(cfg)
    if cfg.get('backend_args'):
        set_file_backend(cfg, cfg.backend_args)
    return cfg


def check_exists(checkpoint: str) -> None:
    """Raise ``UserError`` if a checkpoint does not exist; URLs are not checked."""
    if '://' not in checkpoint and not os.path.exists(checkpoint):
        raise UserError(f'checkpoint {checkpoint!r} does not exist. Give the path or URL of a checkpoint.')
