"""Check the COCO files that the data sets and evaluators of a config read, before they are built."""
import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import METRICS

from .. import scopes
from ..config import class_of, dicts, is_remote, metainfo, type_name, walk
from ..errors import UserError, listed
from ..recipes import command
from .coco import LOST, Fault, check_values, find_faults


@dataclass
class CocoFile:
    """An annotation file in COCO's format that a stage of a config reads.

    Attributes:
        setting: path of its first data set in the config, as ``--cfg-options`` writes it.
        path: the file.
        images: folder of the images.
        classes: names of the classes that are learnt or scored.
        uses: what is done with it, as ``Fault.refused`` names it.
        filters: ``filter_cfg`` of the first data set.
    """
    setting: str
    path: str
    images: str
    classes: tuple[str, ...]
    uses: set[str] = field(default_factory=lambda: {'read'})
    filters: dict[str, Any] = field(default_factory=dict)


def coco_files(cfg: Config, stage: str) -> list[CocoFile]:
    """Return the COCO files of a stage; a line of the log names others.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Raises:
        UserError: an evaluator has a file that no data set reads.
    """
    files: dict[tuple[str, ...], CocoFile] = {}
    for setting, node in walk(cfg.get(f'{stage}_dataloader'), f'{stage}_dataloader'):
        kind = class_of(node, cfg) if 'type' in node and node.get('ann_file') else None
        mmdet = scopes.loaded('mmdet')
        if kind is None or mmdet is None or not issubclass(kind, mmdet.BaseDetDataset):
            continue
        if is_remote(node) or not reads_coco(kind):
            print_log(f'{setting}: the annotations of {type_name(node)}, {node["ann_file"]!r}, are not checked.',
                      logger='current', level=30)
            continue
        root, images = node.get('data_root') or '', (node.get('data_prefix') or {}).get('img', '')
        path, classes = os.path.join(root, node['ann_file']), tuple(metainfo(node, cfg, 'classes'))
        file = CocoFile(setting, path, os.path.join(root, images), classes, filters=node.get('filter_cfg') or {})
        file = files.setdefault((os.path.realpath(path), file.images, *classes), file)
        file.uses |= {'masks'} if any(step.get('with_mask') for step in dicts(node.get('pipeline'))) else set()
    for setting, node in walk(cfg.get(f'{stage}_evaluator'), f'{stage}_evaluator'):
        path = node.get('ann_file')
        if not path or is_remote(node) or not files or node.get('format_only') or 'type' not in node or (
                not issubclass(class_of(node, cfg, METRICS) or object, scopes.kinds('COCO_METRICS'))):
            continue
        same = [file for file in files.values() if os.path.realpath(file.path) == os.path.realpath(path)]
        if not same:
            raise UserError(f'{setting}.ann_file={path!r} is no file of {stage}_dataloader. Give both one file.')
        for file in same:
            file.uses |= {'scored', *(('masks', 'scored masks') if 'segm' in node.get('metric', '') else ())}
    return [*files.values()]


def reads_coco(kind: type) -> bool:
    """Return whether a class is ``CocoDataset`` or a subclass that reads its file in the same way."""
    mmdet = scopes.loaded('mmdet')
    return mmdet is not None and issubclass(kind, mmdet.CocoDataset) and all(
        getattr(kind, name) is getattr(mmdet.CocoDataset, name) for name in (
            'load_data_list', 'parse_data_info', 'COCOAPI'))


def check_annotations(cfg: Config, stages: Sequence[str]) -> None:
    """Check the COCO files of a config, and log what is not learnt or scored, with an example for each reason.

    Args:
        cfg: whole config.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a file would be learnt or scored wrongly, or nothing in it is; the message names the entry, and the
            command that repairs the file where there is one.
    """
    for stage in stages:
        _check_stage(cfg, stage)


def _check_stage(cfg: Config, stage: str) -> None:
    files, number, lines = coco_files(cfg, stage), 0, []
    for file in files:
        try:
            objects, losses = _check_file(file)
        except (OSError, ValueError) as error:
            raise UserError(f'{file.setting}.ann_file={file.path!r}: {error}') from error
        lines += [f'{file.setting}: of {file.path!r}, {loss}.' for loss in losses]
        number += objects
    unscored = [file for file in files if 'scored' not in file.uses]
    if 0 < len(unscored) < len(files):  # its images would be taken for those of another file with the same ids
        raise UserError(f'{unscored[0].setting}.ann_file={unscored[0].path!r} is that of no metric of '
                        f'{stage}_evaluator, which has those of other data sets. Give each data set its own metric '
                        "by type='MultiDatasetsEvaluator', or join the files.")
    # Only a test with format_only, as for COCO's test-dev, needs no objects.
    is_scored = any(not node.get('format_only') for node in dicts(cfg.get(f'{stage}_evaluator')) if 'type' in node)
    if files and not number and (stage == 'train' or is_scored):
        raise UserError(f'{stage}_dataloader: no annotation of the classes is left. {" ".join(lines)}' + (
            '' if stage == 'train' else f' To write results without scores, set {stage}_evaluator.format_only.'))
    for line in lines:
        print_log(line, logger='current', level=30)


def _check_file(file: CocoFile) -> tuple[int, list[str]]:
    """Check a file.

    Returns:
        How many objects are learnt or scored, and what is not, a text for each reason.

    Raises:
        ValueError: it would be learnt or scored wrongly.
    """
    with open(file.path, encoding='utf-8') as opened:  # as pycocotools reads it
        content = json.load(opened)
    check_values(content)
    found = find_faults(content, file.classes)
    refused = [fault for fault, entries in found.items() if entries and fault.refused in file.uses]
    common = os.path.commonpath([os.path.abspath(file.path), os.path.abspath(file.images)])
    folder = common if common != os.sep else 'FOLDER_OF_IMAGES_AND_ANNOTATIONS'
    repair = f'{command("convert_data")} --from coco {shlex.quote(folder)} {shlex.quote(f"{folder}_repaired")}'
    if refused:
        raise ValueError(f'{"; ".join(_described(fault, found[fault]) for fault in refused)}. It would be learnt or '
                         f'scored wrongly. This command writes a repaired copy: {repair}'
                         f'{" --masks" if Fault.NO_MASK in refused else ""}')
    listed_names = [category['name'] for category in content['categories']]
    used_names = [name for name in listed_names if name in file.classes]
    if used_names != list(file.classes):
        right = used_names if len(used_names) == len(file.classes) else listed_names
        raise ValueError(f'metainfo.classes={file.classes!r}, but the file lists {tuple(listed_names)!r}, and '
                         f'MMDetection numbers classes in that order. Write classes = {tuple(right)!r} (a single class '
                         f'needs the comma), or give all files the same categories: {repair}')
    names = {category['id']: category['name'] for category in content['categories']}
    lost = {id(entry) for fault in LOST for entry in found[fault]}
    left = [entry for entry in content['annotations'] if id(entry) not in lost]
    losses = [_described(fault, found[fault]) for fault in LOST if found[fault]]
    filters = {} if 'scored' in file.uses else file.filters
    full = {entry['image_id'] for entry in content['annotations'] if names.get(entry['category_id']) in file.classes}
    filtered = [image['id'] for image in content['images'] if filters.get('filter_empty_gt') and image['id'] not in full
                or min(image['width'], image['height']) < filters.get('min_size', 0)]
    if filtered:
        losses.append(f'{len(filtered)} of {len(content["images"])} images, with the ids {listed(filtered)}, are left '
                      f'out by filter_cfg={dict(filters)}: they have no object of the classes, or a side is too short')
    missing = {*file.classes} - {names[entry['category_id']] for entry in left}
    if missing:
        losses.append(f'the classes {listed(sorted(missing))} have no object')
    return len(left), losses


def _described(fault: Fault, entries: Sequence[dict[str, Any]]) -> str:
    first = {key: value for key, value in entries[0].items() if key != 'segmentation'}
    return f'{fault.text} ({len(entries)}, such as {str(first)[:300]})'
