"""Compare the outputs of a model with the classes of its data."""
import re

from torch import nn

from ...classes import Classes
from ...errors import UserError
from ..built import Built


def check_class_folders(built: Built) -> None:
    """Check that training and validation number classes alike, and that a classifier has as many as it has outputs.

    Raises:
        UserError: a class has another number in each, or a classifier's class folders are fewer than its outputs.
    """
    outputs = built.cfg.model.get('num_classes')
    train, val = (Classes.of_data(getattr(built.loaders.get(stage), 'dataset', None), stage)
                  for stage in ('train', 'val'))
    train.check_order(val)
    # A run that was started with --no-check may go on.
    if train and outputs is not None and len(train) < outputs and not built.cfg.get('resume'):
        raise UserError(f'model.num_classes={outputs}, but the training set has {len(train)} class folders, '
                        f'{train}: set it to {len(train)}, correct data_root, or train anyway with --no-check.')


def heads_of(model: nn.Module) -> dict[str, nn.Module]:
    """Return the heads that predict the classes of the data, by their names in the model.

    Other heads, such as auxiliary ones, all but the last of a cascade of decode heads, or semantic ones beside boxes,
    may learn something else.
    """
    if hasattr(model, 'language_model'):
        return {}  # whose heads take words
    decode = getattr(model, 'decode_head', None)
    last = f'decode_head.{len(decode) - 1}' if isinstance(decode, nn.ModuleList) else 'decode_head'
    return {name: head for name, head in model.named_modules()
            if re.search(r'(^|\.)(bbox|mask|decode)_head(\.\d+)?$', name) and not getattr(head, 'class_agnostic', False)
            and isinstance(getattr(head, 'num_classes', None), int)
            and (name == last or not name.startswith('decode_head'))}


def check_heads(built: Built) -> None:
    """Compare the heads' numbers of classes with those of the data sets.

    Raises:
        UserError: a head that predicts the data set's classes has another number.
    """
    for stage, loader in built.loaders.items():
        about = getattr(loader.dataset, 'metainfo', None) or {}
        classes = about.get('classes') or ()
        things = about.get('thing_classes') or classes  # boxes of panoptic data are of things only
        for name, head in heads_of(built.model).items():
            expected = len(classes if 'decode_head' in name else things)
            if classes and head.num_classes != expected:
                raise UserError(f'{stage}_dataloader has {expected} classes, but model.{name}.num_classes is '
                                f'{head.num_classes}; set it to {expected}, or correct metainfo.classes.')


def check_single_class(built: Built) -> None:
    """Check that a segmentor has two outputs, or one with a sigmoid: softmax over one is always 1.

    Raises:
        UserError: it has one with softmax.
    """
    for name, head in built.model.named_modules():
        losses = getattr(head, 'loss_decode', None)
        if getattr(head, 'num_classes', None) == 1 and losses is not None and not hasattr(head, 'loss_cls') and not any(
                getattr(loss, 'use_sigmoid', False) for loss in losses.modules()):
            raise UserError(f'model.{name}.num_classes is 1: softmax over one class is always 1. Give two classes, '
                            "such as ('background', 'road'); for one output also out_channels=1 and use_sigmoid=True.")
