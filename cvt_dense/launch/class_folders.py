"""Classifiers whose config gives no number of classes: it is that of the class folders."""
import os

from mmengine.config import Config
from mmengine.logging import print_log

from ..datasets.listing import find_classes
from ..errors import UserError
from ..nodes import type_name


def needs_classes(cfg: Config) -> bool:
    """Whether ``cfg`` is of a classifier that gives no ``num_classes``."""
    return type_name(cfg.get('model')) == 'ImageClassifier' and cfg.model.get('num_classes') is None


def count_class_folders(cfg: Config) -> None:
    """Set ``model.num_classes`` where the config leaves it out: the folders that the training set, or another, has.

    Where no data set of ``cfg`` is on this machine it stays open, for a checkpoint to tell.

    Raises:
        UserError: there are fewer than two folders.
    """
    if not needs_classes(cfg):
        return
    for stage in ('train', 'val', 'test'):
        dataset = (cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {}
        root = os.path.join(dataset.get('data_root') or '', dataset.get('split') or '')
        if type_name(dataset) != 'ImageDataset' or dataset.get('ann_file') or not os.path.exists(root):
            continue
        classes = (dataset.get('metainfo') or {}).get('classes') or find_classes(root)
        if len(classes) < 2:
            raise UserError(f'{stage}_dataloader: {root!r} holds {len(classes) or "no"} class folder'
                            f'{f" ({classes[0]!r})" if classes else "s"}; a classifier needs two or more, one for each '
                            f'class: {os.path.join(root, "<class>", "<name>.jpg")}. Correct data_root or the folder '
                            'of the images, or give --data-root DIR.')
        cfg.model.num_classes = len(classes)
        print_log(f'{len(classes)} classes, the folders in {root!r}: {", ".join(classes[:10])}'
                  f'{", ..." if len(classes) > 10 else ""}.', logger='current')
        return
