"""Read a config file or a published model, with overrides and another data root.

A published model is a folder of ``mm_config.json``, the parts of the config that testing needs, and
``model.safetensors``, the weights and the class names. Both are data, which is opened without trust: a config in Python
could run any code when it is opened.
"""
import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import Registry

from ..errors import UserError
from .data_root import read_class_names, redirect_data_root, set_file_backend
from .options import merge_options
from .walk import values, walk

CONFIG, WEIGHTS = 'mm_config.json', 'model.safetensors'
KEPT = ('default_scope', 'model', 'test_dataloader', 'test_evaluator', 'test_cfg', 'tta_model', 'tta_pipeline')
SCOPES = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'cvt_dense')
LARGEST = 5_000_000  # bytes of mm_config.json; the largest config of this project has 30,000


def read_config(file: str, options: dict[str, Any] | None = None, data_root: str | None = None) -> Config:
    """Return the config in a file, with some settings overridden.

    Args:
        file: config file, or a published model: a folder, ``cvt_dense://NAME``, or ``hf://OWNER/NAME``.
        options: settings to override, by their dotted names.
        data_root: folder that takes the place of the config's data root; None keeps it.

    Raises:
        UserError: the file, or a file of class names, does not exist; a setting or an option has no effect; or
            ``data_root`` is no folder.
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


def is_published(source: str | Path) -> bool:
    """Return whether ``source`` names a published model; see :func:`read_config`."""
    return str(source).startswith(('hf://', 'cvt_dense://')) or (Path(source) / CONFIG).is_file()


def fetch(source: str | Path) -> Path:
    """Return the folder of a published model; one on the Hugging Face hub is downloaded into its cache.

    Args:
        source: folder, ``cvt_dense://NAME`` for one of this package, or ``hf://OWNER/NAME[@REVISION]``.

    Raises:
        UserError: the files are not there, cannot be downloaded, or are links to files outside of the folder.
    """
    if str(source).startswith('hf://'):
        from ..weights.files import from_hub  # imports PyTorch
        name, at, revision = str(source).partition('@')
        return [from_hub(f'{name}/{file}{at}{revision}') for file in (CONFIG, WEIGHTS)][0].parent
    if str(source).startswith('cvt_dense://'):
        from ..weights.packaged import packaged_folder
        return packaged_folder(str(source))
    from huggingface_hub.constants import HF_HUB_CACHE
    folder = Path(source)
    allowed = [folder.resolve(), Path(HF_HUB_CACHE).resolve()]
    if folder.resolve().parent.name == 'snapshots':  # in a cache of huggingface_hub, whose snapshots are links
        allowed.append(folder.resolve().parents[1] / 'blobs')
    for file in (folder / CONFIG, folder / WEIGHTS):
        if not file.is_file() or not any(file.resolve().is_relative_to(root) for root in allowed):
            raise UserError(f'{file} is not a file of this folder. A published model has {CONFIG} and {WEIGHTS}.')
    return folder


def read_published(folder: Path) -> Config:
    """Return the config of a published model, after a check that building it runs no other code than mm's types.

    Raises:
        UserError: the file is too large or no JSON; a type is not registered by MMEngine, MMCV, MMDetection,
            MMSegmentation or this package; or a text is a path out of the current folder.
    """
    path = folder / CONFIG
    try:
        content = json.loads(path.read_text(), object_hook=_decode) if path.stat().st_size <= LARGEST else None
    except (ValueError, RecursionError) as error:
        raise UserError(f'{path} is not JSON: {error}.') from error
    scope = content.get('default_scope', 'mmengine') if isinstance(content, dict) else None
    if scope not in SCOPES or set(content) - set(KEPT) or 'model' not in content:
        raise UserError(f'{path} must hold the settings {", ".join(KEPT)}, and no others, in at most {LARGEST:,} '
                        f'bytes, with a default_scope of {", ".join(SCOPES)}.')
    registered = {name.rpartition('.')[2] for name in registered_types(scope)}
    for setting, node in walk(content):
        if 'type' not in node:
            continue
        prefix, _, name = str(node['type']).rpartition('.')
        if prefix not in ('', *SCOPES) or name not in registered:
            raise UserError(f'{path}: {setting}.type={node["type"]!r} is no registered type of {", ".join(SCOPES)}.')
    for setting, text in values(content):
        if isinstance(text, str) and (Path(text).is_absolute() or '..' in Path(text).parts):
            raise UserError(f'{path}: {setting}={text!r} is a path out of the current folder.')
    return Config(content, path.read_text(), str(folder))


def registered_types(scope: str) -> dict[str, Any]:
    """Return the types in the registries of MMEngine, of this package and of the default scope, by their names."""
    packages = dict.fromkeys(('mmengine', 'cvt_dense', scope))
    registries = [registry for package in packages for registry in vars(import_module(f'{package}.registry')).values()
                  if isinstance(registry, Registry)]
    for registry in registries:  # an import registers types in the registries of other packages, too
        registry.import_from_location()
    operators = import_module('mmcv.ops')  # of nms and of RoI layers, which are in no registry
    types = {name: getattr(operators, name) for name in operators.__all__}
    for registry in registries:
        prefix = 'cvt_dense.' if registry.scope == 'cvt_dense' else ''
        types |= {prefix + name: kind for name, kind in registry.module_dict.items()}
    return types


def _decode(value: dict[str, Any]) -> Any:
    return tuple(value['__tuple__']) if set(value) == {'__tuple__'} else value
