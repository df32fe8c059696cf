"""Publish a trained model as a folder; :mod:`.read` opens it."""
import copy
import json
from pathlib import Path
from typing import Any

from mmengine.config import Config

from ..atomic import atomic_path, write_atomically
from .read import CONFIG, KEPT, WEIGHTS, read_published, redirect_data_root, registered_types
from .walk import dicts


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
    names = {kind: name for name, kind in registered_types(content.get('default_scope') or 'mmengine').items()}
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
