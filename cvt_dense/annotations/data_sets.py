"""Check the COCO files that the data sets and evaluators of a config read, before they are built."""
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ..config.settings import class_of, dicts, is_remote, is_scored, metainfo, type_name, walk
from ..errors import UserError
from .coco import Annotations, read

COCO_METRICS = ('CocoMetric', 'FasterCocoMetric')


@dataclass
class CocoFile:
    """An annotation file in COCO's format that a data set or an evaluator of a config reads.

    Attributes:
        setting: path of the data set or evaluator in the config, as ``--cfg-options`` writes it.
        node: its config.
        path: the file.
        images: folder of the images.
        classes: names of the classes that are learnt or scored.
        masks: whether masks are needed.
        evaluates: whether an evaluator reads it.
    """
    setting: str
    node: dict[str, Any]
    path: str
    images: str
    classes: tuple[str, ...]
    masks: bool
    evaluates: bool


def coco_files(cfg: Config, stage: str) -> list[CocoFile]:
    """Return the local COCO files of a stage, those of its data sets first.

    Images, classes and masks of an evaluator are those of the data set with the same file, or of the last one.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.
    """
    files: list[CocoFile] = []
    segments = any('segm' in (metric.get('metric') or ()) for metric in dicts(cfg.get(f'{stage}_evaluator')))
    for setting in (f'{stage}_dataloader', f'{stage}_evaluator'):
        for path, node in walk(cfg.get(setting), setting):
            evaluates = type_name(node) in COCO_METRICS
            if not node.get('ann_file') or is_remote(node) or not (evaluates or _is_coco_data_set(node, cfg)):
                continue
            root, images = node.get('data_root') or '', (node.get('data_prefix') or {}).get('img', '')
            file = os.path.join(root, node['ann_file'])
            if not evaluates:
                masks = segments or any(step.get('with_mask') for step in dicts(node.get('pipeline')))
                classes = tuple(metainfo(node, cfg, 'classes'))
                files.append(CocoFile(path, node, file, os.path.join(root, images), classes, masks, False))
            elif files:
                same = [other for other in files if os.path.realpath(other.path) == os.path.realpath(file)]
                files.append(replace([*files, *same][-1], setting=path, node=node, path=file, evaluates=True))
    return files


def _is_coco_data_set(node: dict[str, Any], cfg: Config) -> bool:
    """Return whether a node's type is ``CocoDataset`` or a subclass that reads its file in the same way."""
    kind = class_of(node, cfg) if 'type' in node else None
    return any(base.__name__ == 'CocoDataset' and base.load_data_list is kind.load_data_list
               and base.COCOAPI is kind.COCOAPI for base in getattr(kind, '__mro__', ()))


def read_annotations(files: Sequence[CocoFile]) -> dict[str, Annotations]:
    """Read COCO files: each once for the same classes, as the data set needs it.

    Returns:
        The content by the setting of the data set or the evaluator that reads it.

    Raises:
        UserError: a file cannot be read, or has other categories than the data set's classes.
    """
    readings, cache = {}, {}
    for file in files:
        key = os.path.realpath(file.path), file.images, file.classes, file.masks
        try:
            if key not in cache:
                cache[key] = read(file.path, file.images)
                cache[key].use_classes(file.classes, file.masks)
                if cache[key].changed:
                    reasons = '; '.join(f'{len(ids)} annotations {reason}, e.g. {ids[0]!r}'
                                        for reason, ids in cache[key].counts.items() if ids)
                    folder = os.path.commonpath([os.path.abspath(file.path), os.path.abspath(file.images)])
                    raise ValueError(f'it would be learnt or scored wrongly as it is. {reasons}. Repair it with '
                                     f'"python tools/convert_data.py --from coco --to coco {folder} {folder}_repaired"')
        except (OSError, ValueError) as error:
            raise UserError(f'{file.setting}.ann_file={file.path!r}: {error}') from error
        readings[file.setting] = cache[key]
    return readings


def check_annotations(cfg: Config, stages: Sequence[str]) -> None:
    """Check the COCO files of a config, and log what is not learnt or scored, with an example for each reason.

    Args:
        cfg: whole config.
        stages: the data loaders that the run uses, of 'train', 'val' and 'test'.

    Raises:
        UserError: a file would be learnt or scored wrongly.
    """
    for stage in stages:
        # Only a test with format_only, as for COCO's test-dev, needs no objects.
        _check_stage(coco_files(cfg, stage), stage, stage == 'train' or is_scored(cfg, stage))


def _check_stage(files: Sequence[CocoFile], stage: str, needed: bool) -> None:
    readings = read_annotations(files)
    lines, learnt, objects, images = [], 0, set(), set()
    for file in files:
        reading = readings[file.setting]
        others = {(entry['image_id'], reading.classes.get(entry['category_id']), *entry['bbox']): entry['id']
                  for entry in reversed(reading.content['annotations'])}
        if not file.evaluates:
            number, reasons = _losses(reading, {*others.values()}, file, stage == 'train')
            lines += [f'{file.setting}: of {file.node["ann_file"]!r}, {reason}.' for reason in reasons]
            read = _subset([*reading.images], file.node.get('indices'))
            learnt, images = learnt + number, images | read
            objects |= {key for key in others if key[0] in read}
            continue
        missed = [number for key, number in others.items() if key[0] not in images]
        if missed:
            lines.append(f'{file.setting}: {len(missed)} of {len(others)} objects, e.g. {missed[0]!r}, are of images '
                         f'that {stage}_dataloader does not read, and count as missed.')
        if not file.node.get('format_only') and {key for key in others if key[0] in images} != objects:
            raise UserError(f'{file.setting}.ann_file={file.node["ann_file"]!r} has other objects than '
                            f'{stage}_dataloader reads. Give both the same file.')
    if readings and not learnt and needed:
        raise UserError(f'{stage}_dataloader: no annotation of the classes is left. {" ".join(lines)}' + (
            '' if stage == 'train' else f' To write results without scores, set {stage}_evaluator.format_only.'))
    for line in lines:
        print_log(line, logger='current', level=30)


def _subset(images: list[Any], indices: int | Sequence[int] | None) -> set[Any]:
    """Return the images that MMEngine reads with a data set's ``indices``: the first ones, the last ones, or a list."""
    if indices is None:
        return set(images)
    if isinstance(indices, int):
        return set(images[:indices] if indices >= 0 else images[indices:])
    return {images[i] for i in indices}


def _losses(reading: Annotations, unique: set[Any], file: CocoFile, training: bool) -> tuple[int, list[str]]:
    """Return how many objects of a data set are learnt or scored, and what is not, a text for each reason."""
    counts, images = dict(reading.counts), reading.images.values()
    objects = [entry for entry in reading.content['annotations'] if entry['category_id'] in reading.classes]
    counts['are of categories that metainfo.classes does not name'] = [
        entry['id'] for entry in reading.content['annotations'] if entry['category_id'] not in reading.classes]
    counts['repeat the bbox and the class of another'] = [
        entry['id'] for entry in objects if entry['id'] not in unique]
    counted, filled = set().union(*counts.values()), {entry['image_id'] for entry in objects}
    counts['are crowds or ignored (iscrowd or ignore is 1)'] = [
        entry['id'] for entry in objects if entry['iscrowd'] and entry['id'] not in counted]
    objects = [entry for entry in objects if not entry['iscrowd']]
    lost: dict[str, list[Any]] = {}
    small = [entry['id'] for entry in objects if min(entry['bbox'][2:]) < 1 or training and entry['area'] <= 0]
    counts['have a side below 1 pixel' + (' or an area of 0, and are not learnt' if training else
                                          ', and nearly always count as missed')] = small
    gone, without = set(small), set()
    if training:
        filters = file.node.get('filter_cfg') or {}
        least, empty = filters.get('min_size', 0), filters.get('filter_empty_gt')
        lost[f'have a side below filter_cfg.min_size={least}, and are left out'] = narrow = [
            image['id'] for image in images if min(image['width'], image['height']) < least]
        lost['have no object of the classes, and are left out; with '
             f'{file.setting}.filter_cfg.filter_empty_gt=False they are not'] = [
                 image['id'] for image in images if empty and image['id'] not in filled]
        without = set(narrow)
    objects = [entry for entry in objects if entry['id'] not in gone and entry['image_id'] not in without]
    kept = {entry['category_id'] for entry in objects}
    empty_classes = [name for number, name in reading.classes.items() if number not in kept]
    return len(objects), [
        f'{len(ids)} of {total} {what} {reason}, e.g. {str(ids[:3])[1:-1]}'
        for what, total, group in (('annotations', reading.total, counts), ('images', len(images), lost), (
            'classes', len(reading.classes), {'have no object': empty_classes}))
        for reason, ids in group.items() if ids]
