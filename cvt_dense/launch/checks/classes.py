"""Check the classes of data sets, heads and class folders."""
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.logging import print_log

from ...config.data_sets import class_names, leaf_datasets, metainfo
from ...errors import UserError
from ...nodes import dicts, type_name, walk


def check_heads(cfg: Config, stages: Sequence[str]) -> None:
    """Compare the heads' numbers of classes with those that the config gives its data sets; reads no data.

    A head that predicts the data set's classes must have as many: boxes, their masks, the last decode head. Another
    one, auxiliary or semantic beside boxes, may have its own number; that is a line in the log.

    Raises:
        UserError: if a predicting head has another number.
    """
    for stage in stages:
        for dataset in leaf_datasets((cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {}):
            _check_heads(cfg, dataset, f'{stage}_dataloader')


def _check_heads(cfg: Config, dataset: dict[str, Any], where: str) -> None:
    classes = metainfo(dataset, cfg, 'classes') if dataset else None
    if not classes or isinstance(classes, str) or any('language_model' in node for node in dicts(cfg.model)):
        return  # unknown, or described by words instead of numbers
    things = metainfo(dataset, cfg, 'thing_classes') or classes  # boxes of panoptic data are of things only
    for path, number, predicts in _head_classes(cfg.model):
        expected = len(classes if 'decode_head' in path else things)
        if number == expected:
            continue
        if predicts:
            raise UserError(f'{where} has {expected} classes, but model.{path}.num_classes is {number}; set it to '
                            f'{expected}, or correct metainfo.classes.')
        print_log(f'{where} has {expected} classes, model.{path}.num_classes is {number}: right if that head learns '
                  'something else.', logger='current')


def check_batches(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that an epoch of training has a batch.

    Raises:
        UserError: if the batch is no whole number of images, or ``drop_last`` leaves every image out.
    """
    loader = cfg.get('train_dataloader') or {}
    batch = loader.get('batch_size', 1)
    if not isinstance(batch, int) or batch < 1:
        raise UserError(f'train_dataloader.batch_size={batch!r}: allowed is a whole number from 1.')
    if 'train' not in datasets or not loader.get('drop_last') or 'Infinite' in type_name(loader.get('sampler')):
        return
    images = -(-len(datasets['train']) // get_world_size())
    if images < batch:
        raise UserError(f'train_dataloader.batch_size={batch}: each process has {images} images in an epoch, and '
                        f'drop_last leaves out a batch that is not full. Set it to {images} or less.')


def check_class_folders(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that training and validation of a classifier have the same class folders.

    Raises:
        UserError: if the folders differ, by which classes are numbered.
    """
    train, val = class_names(datasets.get('train')), class_names(datasets.get('val'))
    if cfg.model.get('num_classes') is not None and train and val and train != val:
        odd = sorted(set(train) ^ set(val))
        raise UserError(f'the class folders for training ({len(train)}) and validation ({len(val)}) differ, so '
                        f'their classes would be numbered differently: only one of them has {odd[:5]}. Give both the '
                        'same folders.')


def check_outputs(cfg: Config, datasets: dict[str, Any]) -> None:
    """Compare a classifier's outputs with the class folders; more outputs are an error where a training begins.

    Raises:
        UserError: if the training set has fewer class folders than the head has outputs.
    """
    outputs = cfg.model.get('num_classes')
    for stage in datasets:
        names = class_names(datasets.get(stage))
        if outputs is None or not names or len(names) >= outputs:
            continue
        if stage == 'train' and not cfg.get('resume'):  # a run that was started with --no-check may go on
            raise UserError(f'the head has {outputs} outputs, but the training set has {len(names)} class folders '
                            f'({", ".join(names[:5])}{", ..." if len(names) > 5 else ""}): set '
                            f'model.num_classes={len(names)}, correct the data root, or train anyway with --no-check.')
        print_log(f'{stage}: the data has {len(names)} classes, and the head has {outputs} outputs.', logger='current')


def _head_classes(model: dict[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """Yield the place, num_classes, and whether it predicts the data set's, of every head but RPNs."""
    for path, node in walk(model):
        keys = path.split('.')
        if path and isinstance(node.get('num_classes'), int) and not any('rpn' in key for key in keys):
            name = [key for key in keys if not key.isdigit()][-1]
            predicts = name in ('bbox_head', 'mask_head', 'decode_head') and not node.get('class_agnostic')
            if isinstance(model.get('decode_head'), (list, tuple)) and keys[0] == 'decode_head':
                predicts = predicts and int(keys[1]) == len(model['decode_head']) - 1  # the others help it
            yield path, node['num_classes'], predicts
