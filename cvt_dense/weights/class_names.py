"""The classes of a file: their names in the order of its outputs, and the rule by which others compare with them."""
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mmengine.logging import print_log

from ..errors import UserError


def classes_of(content: Mapping[str, Any]) -> list[str]:
    """Return the names of a file's classes in the order of its outputs; without names, an empty list.

    Args:
        content: what :func:`.files.read_checkpoint` and :func:`.files.load_weights_file` return for a checkpoint, or
            the metadata of an exported file.
    """
    classes = dataset_meta(content).get('classes') or content.get('classes')
    return list(classes) if isinstance(classes, list | tuple) else []


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
    if not names and path.suffix in ('.safetensors', '.bin') and config.is_file():
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


def check_order(source: str, names: Sequence[str], wanted: Sequence[str], setting: str) -> None:
    """Check that classes which a file shares with data have the same numbers in both, since outputs have no names.

    Args:
        source: the file, for messages.
        names: its classes.
        wanted: classes of the data; nothing is checked where either list is empty.
        setting: what orders ``wanted``, for messages.

    Raises:
        UserError: a class has different numbers in the two lists, or the lists have different lengths and no common
            name.
    """
    places = [{name: number for number, name in reversed(list(enumerate(map(spelling, classes))))}
              for classes in (names, wanted)]
    both = places[0].keys() & places[1].keys()
    lists = f'{source!r} has the classes {_list(names)}; {setting} has {_list(wanted)}'
    if any(places[0][name] != places[1][name] for name in both) or (
            names and wanted and not both and len(names) != len(wanted)):
        raise UserError(f'{lists}. A class must have the same number in both: give {setting} the order of the other.')
    if names and wanted and any(map(str.__ne__, map(str, names), map(str, wanted))):
        print_log(f'{lists}. Classes are compared by number.', logger='current', level=30)


def spelling(name: Any) -> str:
    """Return a class name as it is compared with others."""
    return str(name).casefold().replace('_', ' ')


def _list(names: Sequence[str]) -> str:
    return f'{list(names[:10])}{f" and {len(names) - 10} more" if len(names) > 10 else ""}'
