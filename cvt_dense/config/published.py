"""Publish a trained model as a folder, and open such a folder without trusting it.

The folder holds ``mm_config.json``, the parts of the config that testing needs, and ``model.safetensors``, the weights
and the class names. Both are data: a config in Python could run any code when it is opened.
"""
import copy
import json
from importlib import import_module
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import Registry

from ..atomic import atomic_path, write_atomically
from ..errors import UserError
from .settings import dicts, redirect_data_root, values, walk

CONFIG, WEIGHTS = 'mm_config.json', 'model.safetensors'
KEPT = ('default_scope', 'model', 'test_dataloader', 'test_evaluator', 'test_cfg', 'tta_model', 'tta_pipeline')
SCOPES = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'cvt_dense')
LARGEST = 5_000_000  # bytes of mm_config.json; the largest config of this project has 30,000


def is_published(source: str | Path) -> bool:
    """Return whether ``source`` names a published model: ``hf://OWNER/NAME``, or a folder with ``mm_config.json``."""
    return str(source).startswith('hf://') or (Path(source) / CONFIG).is_file()


def fetch(source: str | Path) -> Path:
    """Return the folder of a published model; one on the Hugging Face hub is downloaded into its cache.

    Args:
        source: folder, or ``hf://OWNER/NAME[@REVISION]``.

    Raises:
        UserError: the files are not there, cannot be downloaded, or are links to files outside of the folder.
    """
    if str(source).startswith('hf://'):
        from ..weights.files import from_hub  # imports PyTorch
        name, at, revision = str(source).partition('@')
        return [from_hub(f'{name}/{file}{at}{revision}') for file in (CONFIG, WEIGHTS)][0].parent
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
    registered = {name.rpartition('.')[2] for name in _registered(scope)}
    for setting, node in walk(content):
        if 'type' not in node:
            continue
        prefix, _, name = str(node['type']).rpartition('.')
        if prefix not in ('', *SCOPES) or name not in registered:
            raise UserError(f'{path}: {setting}.type={node["type"]!r} is no registered type of {", ".join(SCOPES)}.')
    for setting, text in values(content):
        if isinstance(text, str) and (Path(text).is_absolute() or '..' in Path(text).parts):
            raise UserError(f'{path}: {setting}={text!r} is a path out of the current folder.')
    cfg = Config(content)
    cfg._filename = str(folder)
    return cfg


def publish(cfg: Config, checkpoint: dict[str, Any], folder: Path) -> str | None:
    """Write ``mm_config.json`` and ``model.safetensors``.

    Args:
        cfg: complete config. Its data root becomes ``data``, and pretrained weights are left out.
        checkpoint: content of a checkpoint; its averaged weights are published.
        folder: folder to write to.

    Returns:
        The data root that the config has had, if any.

    Raises:
        UserError: the config cannot be opened elsewhere: it has a path of this machine or a type that is not
            registered.
    """
    import safetensors.torch

    from ..weights import dataset_meta, select_weights
    content = Config({key: copy.deepcopy(cfg[key]) for key in KEPT if key in cfg})
    rooted = any(node.get('data_root') for node in dicts(content.to_dict()))
    data_root = redirect_data_root(content, 'data') if rooted else None
    for node in dicts(content._cfg_dict):
        node.pop('init_cfg', None)
    names = {kind: name for name, kind in _registered(content.get('default_scope') or 'mmengine').items()}
    write_atomically(folder / CONFIG, json.dumps(_encode(content._cfg_dict, names), indent=1))
    read_published(folder)
    meta = dataset_meta(checkpoint)
    names = json.dumps({key: meta[key] for key in ('classes', 'palette') if meta.get(key)})
    # RTMDet's levels share convolutions; safetensors refuses tensors that share memory.
    tensors = {key: value.contiguous().clone() for key, value in select_weights(checkpoint).items()}
    with atomic_path(folder / WEIGHTS) as partial:
        safetensors.torch.save_file(tensors, partial, metadata=dict(format='pt', dataset_meta=names))
        partial.chmod(0o644)  # safetensors lets no one else read it
    return data_root


def _registered(scope: str) -> dict[str, Any]:
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


def _encode(value: Any, names: dict[Any, str]) -> Any:
    """Return ``value`` as JSON has it.

    Tuples become dicts: transforms of mm distinguish them from lists. Types of pure-Python configs become names.

    Args:
        value: any part of a config.
        names: names of the registered types.
    """
    if isinstance(value, tuple):
        return dict(__tuple__=[_encode(child, names) for child in value])
    if isinstance(value, dict):
        return {key: _encode(child, names) for key, child in value.items()}
    if callable(value):
        return names.get(value) or f'{value.__module__}.{value.__qualname__}'  # which read_published refuses
    return [_encode(child, names) for child in value] if isinstance(value, list) else value


def _decode(value: dict[str, Any]) -> Any:
    return tuple(value['__tuple__']) if set(value) == {'__tuple__'} else value
