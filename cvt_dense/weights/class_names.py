"""The names of the classes that a weight file, or a file beside it, holds."""
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def dataset_meta(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the ``classes`` and maybe the ``palette`` that a checkpoint has; otherwise an empty dict."""
    return (content.get('meta') or {}).get('dataset_meta') or {}


def add_class_names(content: Any, about: Mapping[str, str], path: Path) -> Any:
    """Return a checkpoint's content with its class names in ``meta['dataset_meta']``, wherever its file has them.

    Args:
        content: what the file holds.
        about: metadata of a ``.safetensors`` file: ``dataset_meta``, or ``classes``, as JSON.
        path: the file. A ``config.json`` of transformers (``id2label``) or timm (``label_names``) is beside it.
    """
    if not isinstance(content, Mapping):
        return content
    meta = content.get('meta') if isinstance(content.get('meta'), dict) else {}
    old = {key: meta[key] for key in ('CLASSES', 'PALETTE') if meta.get(key)}  # of MMDetection 2
    names = meta.get('dataset_meta') or old or json.loads(about.get('dataset_meta', '{}'))
    if not names and 'classes' in about:
        names = dict(classes=json.loads(about['classes']))
    config = path.parent / 'config.json'
    if not names and path.suffix.lower() in ('.safetensors', '.bin') and config.is_file():
        names = _of_config(json.loads(config.read_text()))
    if not names or not isinstance(names, dict):
        return content
    if 'state_dict' not in content and not meta:
        content = dict(state_dict=content)
    # MMDetection 3.0rc has upper case too.
    return dict(content, meta=dict(meta, dataset_meta={key.lower(): value for key, value in names.items()}))


def _of_config(config: Any) -> dict[str, list[str]]:
    """Return the classes in a ``config.json``, unless they are transformers' placeholders, LABEL_0 and so on."""
    if not isinstance(config, dict):
        return {}
    names, labels = config.get('label_names'), config.get('id2label')
    if labels is None and isinstance(config.get('label2id'), dict):
        labels = {str(number): name for name, number in config['label2id'].items()}
    if isinstance(labels, dict) and sorted(labels, key=str) == sorted(map(str, range(len(labels)))):
        names = [labels[str(number)] for number in range(len(labels))]
    if not isinstance(names, list) or all(re.fullmatch(r'LABEL_\d+', str(name)) for name in names):
        return {}
    return dict(classes=list(map(str, names)))
