"""Check a config before a data set is built.

This module imports no PyTorch, so that a missing folder is reported at once.
"""
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config

from ...annotations.coco import Annotations
from ...annotations.data_sets import check_annotations
from ...config.settings import dicts, leaf_datasets, metainfo, type_name, walk
from ...console import prints_to_log
from ...errors import UserError


def check_config(cfg: Config, stages: Sequence[str]) -> dict[str, Annotations]:
    """Run :func:`check_paths`, all of :data:`CONFIG_CHECKS`, and :func:`check_annotations`, whose result is returned.

    Args:
        cfg: the whole config, with all flags applied.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a check has found a mistake.
    """
    check_paths(cfg, stages)
    with prints_to_log():  # packages of data sets are imported, and print then
        for check in CONFIG_CHECKS:
            check(cfg, stages)
        return check_annotations(cfg, stages)


def data_sets_of(cfg: Config, stages: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the data loader's name and the config of each data set of ``stages``, inside any wrappers."""
    for stage in stages:
        where = f'{stage}_dataloader'
        if (cfg.get(where) or {}).get('dataset'):
            yield from ((where, dataset) for dataset in leaf_datasets(cfg[where].dataset))


def check_paths(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the folders and COCO files of the data loaders exist, unless they are not on the file system.

    Raises:
        UserError: a file or folder is missing.
    """
    for where, dataset in data_sets_of(cfg, stages):
        root = dataset.get('data_root') or ''
        if any(node.get('backend_args') for node in dicts(dataset)):
            continue
        folders = {f'data_prefix.{name}': os.path.join(root, folder) if isinstance(folder, str) else ''
                   for name, folder in (dataset.get('data_prefix') or {}).items()}
        if type_name(dataset) == 'ImageDataset':
            folders['data_root'] = root
        missing = [(name, path) for name, path in folders.items() if path and not os.path.isdir(path)]
        file = os.path.join(root, dataset.get('ann_file') or '')
        if type_name(dataset) == 'CocoDataset' and not os.path.isfile(file):
            missing.append(('ann_file', file))
        if missing:
            name, path = missing[0]
            raise UserError(f'{where}: {path!r} ({name}) does not exist. Correct it in the config, or give --data-root '
                            'DIR.')


def check_heads(cfg: Config, stages: Sequence[str]) -> None:
    """Compare the heads' numbers of classes with those that the config gives its data sets; reads no data.

    Raises:
        UserError: a head that predicts the data set's classes has another number.
    """
    if any('language_model' in node for node in dicts(cfg.model)):  # classes are described by words
        return
    for where, dataset in data_sets_of(cfg, stages):
        classes = metainfo(dataset, cfg, 'classes')
        if not classes or isinstance(classes, str):
            continue
        things = metainfo(dataset, cfg, 'thing_classes') or classes  # boxes of panoptic data are of things only
        for path, number in _predicting_heads(cfg.model):
            expected = len(classes if 'decode_head' in path else things)
            if number != expected:
                raise UserError(f'{where} has {expected} classes, but model.{path}.num_classes is {number}; set it to '
                                f'{expected}, or correct metainfo.classes.')


def check_single_class(cfg: Config, stages: Sequence[str]) -> None:
    """Check that a segmentor has two outputs, or one with a sigmoid: softmax over one is always 1.

    Raises:
        UserError: it has one with softmax.
    """
    for path, node in walk({key: cfg.model.get(key) for key in ('decode_head', 'auxiliary_head')}):
        losses = node.get('loss_decode') or {}
        single = node.get('num_classes') == 1 and 'loss_cls' not in node
        if single and not any(loss.get('use_sigmoid') for loss in dicts(losses)):
            raise UserError(f'model.{path}.num_classes is 1: softmax over a single class is always 1, and nothing is '
                            "learnt. Give two classes, such as ('background', 'road'); or those and out_channels=1 "
                            'with loss_decode.use_sigmoid=True for a single output.')


def _predicting_heads(model: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the place and num_classes of the heads of boxes and masks and of the last decode head.

    Other heads, auxiliary or semantic beside boxes, may learn something else.
    """
    for path, node in walk(model):
        keys = path.split('.')
        name = [key for key in keys if not key.isdigit()][-1]
        helps = isinstance(model.get(keys[0]), list) and keys[0] == 'decode_head' and keys[1:] and (
            int(keys[1]) < len(model['decode_head']) - 1)
        if (name in ('bbox_head', 'mask_head', 'decode_head') and isinstance(node.get('num_classes'), int)
                and not node.get('class_agnostic') and not helps and 'rpn' not in path):
            yield path, node['num_classes']


CONFIG_CHECKS = [check_single_class, check_heads]  # each takes cfg and stages
