"""Check a config before a data set is built.

This module imports no PyTorch, so that a missing folder is reported at once.
"""
import os
import re
from collections.abc import Sequence
from pathlib import Path

from mmengine.config import Config

from ...annotations.data_sets import check_annotations
from ...config.read import VARIABLE, read_names
from ...config.walk import datasets_of, dicts, is_remote, metainfo, walk
from ...errors import UserError

ASSIGNED = re.compile(r'^(\w+(?:, *\w+)*) = ', re.M)  # the names of a line of a config file


def check_config(cfg: Config, stages: Sequence[str]) -> None:
    """Run :data:`CONFIG_CHECKS`, which change nothing.

    Args:
        cfg: the whole config, with all flags applied.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a check finds a mistake.
    """
    for check_setting in CONFIG_CHECKS:
        check_setting(cfg, stages)


def check_paths(cfg: Config, stages: Sequence[str]) -> None:
    """Check that the folders and files of the data sets exist, unless they are not on the file system.

    Raises:
        UserError: a file or folder is missing, or ``ann_file`` is a list.
    """
    for stage in stages:
        for dataset in datasets_of(cfg, stage):
            if not isinstance(dataset.get('ann_file') or '', str):
                raise UserError(f'{stage}_dataloader: ann_file={dataset["ann_file"]!r} is no path; join several files '
                                "with dataset=dict(type='ConcatDataset', datasets=[...]).")
            root, prefixes = dataset.get('data_root') or '', (dataset.get('data_prefix') or {}).values()
            paths = [os.path.join(root, path) for path in ('', *prefixes, dataset.get('ann_file'))
                     if isinstance(path, str) and os.path.join(root, path)]
            missing = [path for path in paths if not os.path.exists(path)]
            if missing and not any(map(is_remote, dicts(dataset))):
                raise UserError(f'{stage}_dataloader: {missing[0]!r} does not exist. Correct data_root, data_prefix or '
                                'ann_file, or give --data-root DIR.')


def check_heads(cfg: Config, stages: Sequence[str]) -> None:
    """Compare the heads' numbers of classes with those that the config gives its data sets; reads no data.

    Raises:
        UserError: a head that predicts the data set's classes has another number.
    """
    if any('language_model' in node for node in dicts(cfg.model)):
        return  # their heads take words
    # Other heads, such as auxiliary ones, all but the last of a cascade of decode heads, or semantic ones beside boxes,
    # may learn something else.
    last = f'decode_head.{len(cfg.model.get("decode_head") or ()) - 1}'
    heads = {path: node for path, node in walk(cfg.model)
             if re.search(r'(^|\.)(bbox|mask|decode)_head(\.\d+)?$', path) and not node.get('class_agnostic')
             and (path == last or not re.match(r'decode_head\.\d', path))}
    for stage in stages:
        for dataset in datasets_of(cfg, stage):
            classes = metainfo(dataset, cfg, 'classes') or ()
            things = metainfo(dataset, cfg, 'thing_classes') or classes  # boxes of panoptic data are of things only
            for path, node in heads.items():
                number, expected = node.get('num_classes'), len(classes if 'decode_head' in path else things)
                if classes and isinstance(number, int) and number != expected:
                    raise UserError(f'{stage}_dataloader has {expected} classes, but model.{path}.num_classes is '
                                    f'{number}; set it to {expected}, or correct metainfo.classes.')


def check_single_class(cfg: Config, stages: Sequence[str]) -> None:
    """Check that a segmentor has two outputs, or one with a sigmoid: softmax over one is always 1.

    Raises:
        UserError: it has one with softmax.
    """
    for path, node in walk({key: cfg.model.get(key) for key in ('decode_head', 'auxiliary_head')}):
        single = node.get('num_classes') == 1 and 'loss_cls' not in node
        if single and not any(loss.get('use_sigmoid') for loss in dicts(node.get('loss_decode'))):
            raise UserError(f'model.{path}.num_classes is 1: softmax over one class is always 1. Give two classes, '
                            "such as ('background', 'road'); for one output also out_channels=1 and use_sigmoid=True.")


def check_variables(cfg: Config, stages: Sequence[str]) -> None:
    """Check that a file sets no variable from which the one that it inherits has computed other settings already.

    Raises:
        UserError: it assigns such a variable, and does not use it itself.
    """
    own = Path(cfg.filename).read_text('utf-8') if str(cfg.filename).endswith('.py') else ''
    others = cfg.text.removesuffix(own)
    assigned, inherited = ({name for names in ASSIGNED.findall(text) for name in re.split(', *', names)}
                           for text in (own, others))
    for name in sorted(assigned & inherited - {'_base_', *read_names()}):
        line = re.search(rf'^{name} = .*(?<![\[({{,])$', own, re.M)
        repeated = line and line[0] in others.splitlines()
        if not repeated and len(re.findall(rf'\b{name}\b', own)) == 1:
            raise UserError(f'{cfg.filename}: the line {name!r} changes nothing, since it is {VARIABLE}.')


# Each takes cfg and stages; check_paths is the first, because others import PyTorch.
CONFIG_CHECKS = [check_paths, check_variables, check_single_class, check_heads, check_annotations]
