"""Take the number of classes from the class folders where a classifier's config does not give it."""
import os
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from ..errors import UserError
from .data_sets import leaf_datasets
from .nodes import type_name
from .read import check_exists


def set_classes(cfg: Config, checkpoint: str, runtime: str | None = None) -> None:
    """Give the test data's class folders the numbers that they have in a classifier's checkpoint or exported file.

    ``model.num_classes`` is the checkpoint's too, where the config leaves it open.

    Args:
        cfg: changed in place; configs of other models stay as they are.
        checkpoint: checkpoint file or URL, or an exported file.
        runtime: see :func:`cvt_dense.deploy.runtime.open_exported`.

    Raises:
        UserError: the checkpoint does not exist, or there are fewer than two class folders.
    """
    check_exists(checkpoint)
    if type_name(cfg.get('model')) != 'ImageClassifier':
        return
    from ..deploy.runtime import is_exported, open_exported  # imports PyTorch
    from ..weights import classes_of, load_weights_file
    content = open_exported(checkpoint, runtime).metadata if is_exported(checkpoint) else load_weights_file(checkpoint)
    classes, weights = classes_of(content), content.get('state_dict', content)
    if cfg.model.get('num_classes') is None:
        cfg.model.num_classes = len(weights['head.weight']) if 'head.weight' in weights else len(classes) or None
    loader = cfg.get('test_dataloader') or {}
    for dataset in leaf_datasets(loader.get('dataset') or {}) if classes else ():
        about = dataset.get('metainfo') or {}
        if not about.get('classes') and set(classes) & set(_class_folders(dataset) or ()):  # names may be other words
            dataset['metainfo'] = dict(about, classes=classes)
    count_class_folders(cfg)


def count_class_folders(cfg: Config) -> None:
    """Set the ``num_classes`` of a classifier that gives none to the number of class folders of its training set.

    The validation or test set counts where there is no training set; without any of them the number stays open.

    Raises:
        UserError: there are fewer than two folders, or the config names no list of classes that there is.
    """
    if type_name(cfg.get('model')) != 'ImageClassifier' or cfg.model.get('num_classes') is not None:
        return
    for stage in ('train', 'val', 'test'):
        classes = _class_folders(next(leaf_datasets((cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {})))
        if classes is None:
            continue
        if len(classes) < 2:
            raise UserError(f'{stage}_dataloader has {len(classes)} class folders {classes}; a classifier needs two or '
                            'more. Correct data_root, or give --data-root DIR.')
        cfg.model.num_classes = len(classes)
        return


def _class_folders(dataset: dict[str, Any]) -> Sequence[str] | None:
    """Return the classes of a data set of class folders by number, or None for another one or without its files."""
    root = os.path.join(dataset.get('data_root') or '', dataset.get('split') or '')
    if type_name(dataset) != 'ImageDataset' or dataset.get('ann_file') or not os.path.exists(root):
        return None
    from ..pretraining.listing import find_classes, read_classes  # imports PyTorch
    return read_classes((dataset.get('metainfo') or {}).get('classes')) or find_classes(root)
