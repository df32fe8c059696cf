"""The heads' numbers of classes beside the data set's."""
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ...errors import UserError
from ...nodes import dicts, walk
from .data_sets import leaf_datasets, metainfo


def check_heads(cfg: Config, stage: str) -> None:
    """Compares the heads' numbers of classes with those that ``cfg`` gives its ``{stage}_dataloader``; reads no data.

    A head that predicts the data set's classes must have as many: boxes, their masks, the last decode head. Another
    one, auxiliary or semantic beside boxes, may have its own number; that is a line in the log.

    Raises:
        UserError: a predicting head has another number.
    """
    where = f'{stage}_dataloader'
    for dataset in leaf_datasets(cfg[where].dataset):
        classes = metainfo(dataset, cfg, 'classes')
        if not classes or isinstance(classes, str) or any('language_model' in node for node in dicts(cfg.model)):
            continue  # unknown, or described by words instead of numbers
        things = metainfo(dataset, cfg, 'thing_classes') or classes  # boxes of panoptic data are of things only
        for path, number, predicts in _head_classes(cfg.model):
            expected = len(classes if 'decode_head' in path else things)
            if number == expected:
                continue
            if predicts:
                raise UserError(f'{where} has {expected} classes, but model.{path}.num_classes is {number}; set it to '
                                f'{expected}, or correct metainfo.classes.')
            print_log(f'{where} has {expected} classes, model.{path}.num_classes is {number}: right if that head '
                      'learns something else.', logger='current')


def _head_classes(model: dict[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """(place, num_classes, whether it predicts the data set's) of every head in a model's config, but for RPNs."""
    for path, node in walk(model):
        keys = path.split('.')
        if path and isinstance(node.get('num_classes'), int) and not any('rpn' in key for key in keys):
            name = [key for key in keys if not key.isdigit()][-1]
            predicts = name in ('bbox_head', 'mask_head', 'decode_head') and not node.get('class_agnostic')
            if isinstance(model.get('decode_head'), (list, tuple)) and keys[0] == 'decode_head':
                predicts = predicts and int(keys[1]) == len(model['decode_head']) - 1  # the others help it
            yield path, node['num_classes'], predicts
