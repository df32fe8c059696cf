"""Read the COCO files of a config before its data sets are built, and let data sets and evaluators use that content."""
import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ..config.settings import class_of, dicts, is_remote, metainfo, type_name, walk
from ..errors import UserError
from .coco import Annotations, read

METRICS = ('CocoMetric', 'FasterCocoMetric')


def nodes_of(cfg: Config, stage: str) -> dict[str, dict[str, Any]]:
    """Return the configs of a stage's data sets and evaluators that read a local COCO file, by their paths.

    The paths are as ``--cfg-options`` writes them.
    """
    return {path: node for setting in (f'{stage}_dataloader', f'{stage}_evaluator')
            for path, node in walk(cfg.get(setting), setting)
            if node.get('ann_file') and not is_remote(node)
            and (type_name(node) in METRICS or _is_coco_data_set(node, cfg))}


def _is_coco_data_set(node: dict[str, Any], cfg: Config) -> bool:
    """Return whether a node's type is ``CocoDataset`` or a subclass that reads its file in the same way."""
    kind = class_of(node, cfg) if 'type' in node else None
    return any(base.__name__ == 'CocoDataset' and base.load_data_list is kind.load_data_list
               and base.COCOAPI is kind.COCOAPI for base in getattr(kind, '__mro__', ()))


def read_annotations(cfg: Config, stage: str) -> dict[str, Annotations]:
    """Read the COCO files of a stage: each once, as the classes and the pipeline of its data set need it.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Returns:
        The content by the path of the data set or the evaluator that reads it.

    Raises:
        UserError: a file cannot be read, or has other categories than the data set's classes.
    """
    readings, cache, settings = {}, {}, {}
    for path, node in nodes_of(cfg, stage).items():
        root = node.get('data_root') or ''
        file = os.path.join(root, node['ann_file'])
        if type_name(node) not in METRICS:
            masks = any(step.get('with_mask') for step in dicts(node.get('pipeline'))) or any(
                'segm' in (metric.get('metric') or ()) for metric in dicts(cfg.get(f'{stage}_evaluator')))
            settings[os.path.realpath(file)] = last = (
                os.path.join(root, (node.get('data_prefix') or {}).get('img', '')),
                tuple(metainfo(node, cfg, 'classes')), masks)
        if not settings:
            continue
        key = os.path.realpath(file), *settings.get(os.path.realpath(file), last)
        try:
            if key not in cache:
                cache[key] = read(file, key[1])
                cache[key].use_classes(*key[2:])
        except (OSError, ValueError) as error:
            raise UserError(f'{path}.ann_file={file!r}: {error}') from error
        readings[path] = cache[key]
    return readings


def check_annotations(cfg: Config, stages: Sequence[str]) -> dict[str, Annotations]:
    """Read the COCO files of stages, and log what is not learnt or scored, with an example for each reason.

    Returns:
        See :func:`read_annotations`.

    Raises:
        UserError: as there; or no object is left, except where a test writes its results down (``format_only``), as of
            COCO's test-dev; or the evaluator's file has other objects.
    """
    checked: dict[str, Annotations] = {}
    for stage in stages:
        readings = read_annotations(cfg, stage)
        lines, learnt, objects, images = [], 0, set(), set()
        for path, node in nodes_of(cfg, stage).items():
            if path not in readings:
                continue
            reading = readings[path]
            others = {(entry['image_id'], reading.classes.get(entry['category_id']), *entry['bbox']): entry['id']
                      for entry in reversed(reading.content['annotations'])}
            if type_name(node) not in METRICS:
                number, reasons = _losses(reading, {*others.values()}, path, node, stage == 'train')
                lines += [f'{path}: of {node["ann_file"]!r}, {reason}.' for reason in reasons]
                if stage == 'test' and reading.renumbered:
                    lines.append(f'{path}: in results that are written, category ids are {reading.renumbered}.')
                learnt, objects, images = learnt + number, objects | others.keys(), images | reading.images.keys()
            elif not node.get('format_only') and {key for key in others if key[0] in images} != objects:
                # An evaluator's file may have more images.
                raise UserError(f'{path}.ann_file={node["ann_file"]!r} has other objects than {stage}_dataloader '
                                'reads. Give both the same file.')
        scored = any(not node.get('format_only') for node in dicts(cfg.get(f'{stage}_evaluator')) if 'type' in node)
        if readings and not learnt and (scored or stage == 'train'):
            raise UserError(f'{stage}_dataloader: no annotation of the classes is left. {" ".join(lines)}' + (
                '' if stage == 'train' else f' To write results without scores, set {stage}_evaluator.format_only.'))
        for line in lines:
            print_log(line, logger='current', level=30)
        checked |= readings
    return checked


def _losses(reading: Annotations, unique: set[Any], path: str, node: dict[str, Any], training: bool
            ) -> tuple[int, list[str]]:
    """Return how many objects of a data set are learnt or scored, and what is not, a text for each reason."""
    counts, images = dict(reading.counts), reading.images.values()
    objects = [entry for entry in reading.content['annotations'] if entry['category_id'] in reading.classes]
    counts['repeat the bbox and the class of another'] = [
        entry['id'] for entry in objects if entry['id'] not in unique]
    counted, filled = set().union(*counts.values()), {entry['image_id'] for entry in objects}
    counts['are crowds or ignored (iscrowd or ignore is 1)'] = [
        entry['id'] for entry in objects if entry['iscrowd'] and entry['id'] not in counted]
    objects = [entry for entry in objects if not entry['iscrowd']]
    lost: dict[str, list[Any]] = {}
    if training:
        counts['have an area of 0 or a side below 1 pixel, and are not learnt'] = small = [
            entry['id'] for entry in objects if entry['area'] <= 0 or min(entry['bbox'][2:]) < 1]
        filters = node.get('filter_cfg') or {}
        least, empty = filters.get('min_size', 0), filters.get('filter_empty_gt')
        lost[f'have a side below filter_cfg.min_size={least}, and are left out'] = narrow = [
            image['id'] for image in images if min(image['width'], image['height']) < least]
        lost[f'have no object of the classes, and are left out; with {path}.filter_cfg.filter_empty_gt=False they are '
             'not'] = [image['id'] for image in images if empty and image['id'] not in filled]
        gone, without = set(small), set(narrow)
        objects = [entry for entry in objects if entry['id'] not in gone and entry['image_id'] not in without]
    kept = {entry['category_id'] for entry in objects}
    empty_classes = [name for number, name in reading.classes.items() if number not in kept]
    return len(objects), [
        f'{len(ids)} of {total} {what} {reason}, e.g. {str(ids[:3])[1:-1]}'
        for what, total, group in (('annotations', reading.total, counts), ('images', len(images), lost), (
            'classes', len(reading.classes), {'have no object': empty_classes}))
        for reason, ids in group.items() if ids]


def use_annotations(cfg: Config, stages: Sequence[str], checked: dict[str, Annotations] | None,
                    folder: str) -> None:
    """Let the data sets and evaluators of a config read the content of :func:`read_annotations`.

    Content that differs from the user's file is written. Each process does so for itself, since hosts may share no
    disk, and processes that share one write the same file. Checkpoints keep the user's config.

    Args:
        cfg: config to change.
        stages: any of 'train', 'val' and 'test'.
        checked: what has been read already.
        folder: the files are written below it, in ``annotations``.
    """
    for stage in stages:
        readings = read_annotations(cfg, stage) if checked is None else checked
        for path, node in nodes_of(cfg, stage).items():
            if path in readings and readings[path].changed:
                node['ann_file'] = os.path.abspath(os.path.join(folder, 'annotations', f'{path}.json'))
                os.makedirs(os.path.dirname(node['ann_file']), exist_ok=True)
                with tempfile.NamedTemporaryFile('w', dir=os.path.dirname(node['ann_file']), delete=False) as file:
                    file.write(json.dumps(readings[path].content))
                os.replace(file.name, node['ann_file'])
