"""Read the COCO files of a config before its data sets are built, and let data sets and evaluators use that content."""
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ..config.data_sets import metainfo
from ..config.nodes import dicts, type_name, walk
from ..errors import UserError
from .coco import Annotations, read


def nodes_of(cfg: Config, setting: str, types: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the config of each part of a setting that reads a local file and has one of ``types``."""
    for path, node in walk(cfg.get(setting), setting):
        if type_name(node) in types and node.get('ann_file') and not node.get('backend_args'):
            yield path, node


def read_annotations(cfg: Config, stage: str) -> dict[str, Annotations]:
    """Read the COCO files of a stage: each once, as its classes and its pipeline need it.

    Args:
        cfg: whole config.
        stage: 'train', 'val' or 'test'.

    Returns:
        The content by the path of the data set or the evaluator that reads it, as ``--cfg-options`` writes it.

    Raises:
        UserError: a file cannot be read, or has other categories than the data set's classes.
    """
    found: dict[str, Annotations] = {}
    cache: dict[tuple, Annotations] = {}
    evaluators = dict(nodes_of(cfg, f'{stage}_evaluator', ('CocoMetric', 'FasterCocoMetric')))
    scores_masks = any('segm' in node.get('metric', ()) for node in evaluators.values())

    def open_once(path: str, file: str, *settings: Any) -> None:
        key = os.path.realpath(file), *settings
        try:
            if key not in cache:
                cache[key] = read(file, settings[0])
                cache[key].use_classes(*settings[1:])
        except (OSError, ValueError) as error:
            raise UserError(f'{path}.ann_file: {error}') from error
        found[path] = cache[key]

    settings: dict[str, tuple] = {}
    for path, node in nodes_of(cfg, f'{stage}_dataloader', ('CocoDataset', )):
        root, prefix = node.get('data_root') or '', (node.get('data_prefix') or {}).get('img', '')
        masks = scores_masks or any(step.get('with_mask') for step in dicts(node.get('pipeline')))
        file = os.path.join(root, node['ann_file'])
        settings[os.path.realpath(file)] = last = (
            os.path.join(root, prefix), tuple(metainfo(node, cfg, 'classes')), masks)
        open_once(path, file, *last)
    for path, node in evaluators.items() if settings else ():
        open_once(path, node['ann_file'], *settings.get(os.path.realpath(node['ann_file']), last))
    return found


def check_annotations(cfg: Config, stages: Sequence[str]) -> dict[str, Annotations]:
    """Read the COCO files of stages, and log what is not learnt or scored, with an example for each reason.

    Returns:
        See :func:`read_annotations`.

    Raises:
        UserError: as there; or no object is left, except where a test writes its results down (``format_only``), as of
            COCO's test-dev; or the evaluator's file has other objects.
    """
    found: dict[str, Annotations] = {}
    for stage in stages:
        found |= read_annotations(cfg, stage)
        sets = {path: found[path] for path, _ in nodes_of(cfg, f'{stage}_dataloader', ('CocoDataset', ))
                if path in found}
        scored = [node for node in dicts(cfg.get(f'{stage}_evaluator')) if node.get('type')
                  and not node.get('format_only')]
        learnt, lines = 0, []
        for path, node in nodes_of(cfg, f'{stage}_dataloader', ('CocoDataset', )):
            number, reasons = _losses(found[path], path, node, stage == 'train')
            learnt += number
            lines += [f'{path}: of {node["ann_file"]!r}, {reason}.' for reason in reasons]
        if sets and not learnt and (scored or stage == 'train'):
            raise UserError(f'{stage}_dataloader: no annotation of the classes is left. ' + ' '.join(lines) + (
                '' if stage == 'train' else ' To write predictions without scores, set '
                f'{stage}_evaluator.format_only=True.'))
        for line in lines:
            print_log(line, logger='current', level=30)
        objects = set().union(*map(_objects, sets.values()))
        images = {image for reading in sets.values() for image in reading.images}
        for path, node in nodes_of(cfg, f'{stage}_evaluator', ('CocoMetric', 'FasterCocoMetric')):
            # It may have more images.
            if path in found and {one for one in _objects(found[path]) if one[0] in images} != objects:
                raise UserError(f'{path}.ann_file is {node["ann_file"]!r}, but {stage}_dataloader reads other objects. '
                                'Give both the same file.')
    return found


def _objects(reading: Annotations) -> set[tuple]:
    return {(one['image_id'], reading.classes.get(one['category_id']), *one['bbox'])
            for one in reading.content['annotations']}


def _losses(reading: Annotations, path: str, node: dict[str, Any], training: bool) -> tuple[int, list[str]]:
    """Return how many objects of a data set are learnt or scored, and what is not, a text for each reason."""
    counts = dict(reading.counts)
    objects = [one for one in reading.content['annotations'] if one['category_id'] in reading.classes]
    filled = {one['image_id'] for one in objects}
    told = set().union(*counts.values())
    counts['are crowds or ignored (iscrowd or ignore is 1)'] = [
        one['id'] for one in objects if one['iscrowd'] and one['id'] not in told]
    objects = [one for one in objects if not one['iscrowd']]
    lost: dict[str, list[Any]] = {}
    if training:
        small = [one for one in objects if one['area'] <= 0 or min(one['bbox'][2:]) < 1]
        counts['have an area of 0 or a side below 1 pixel, and are not learnt'] = [one['id'] for one in small]
        filters = node.get('filter_cfg') or {}
        least = filters.get('min_size', 0)
        narrow = {name for name, image in reading.images.items() if min(image['width'], image['height']) < least}
        lost[f'have a side below filter_cfg.min_size={least}, and are left out'] = sorted(narrow)
        if filters.get('filter_empty_gt'):
            lost[f'have no object of the classes, and are left out; with {path}.filter_cfg.filter_empty_gt=False they '
                 'are not'] = [name for name in reading.images if name not in filled]
        gone = {one['id'] for one in small}
        objects = [one for one in objects if one['id'] not in gone and one['image_id'] not in narrow]
    return len(objects), [
        f'{len(ids)} of {total} {what} {reason}, e.g. {str(ids[:3])[1:-1]}'
        for what, total, group in (('annotations', reading.total, counts), ('images', len(reading.images), lost))
        for reason, ids in group.items() if ids]


def use_annotations(cfg: Config, stages: Sequence[str], found: dict[str, Annotations] | None) -> None:
    """Let the data sets and evaluators of a config read the content of :func:`read_annotations`.

    Each process does so for itself. Checkpoints keep the user's config.

    Args:
        cfg: config to change.
        stages: any of 'train', 'val' and 'test'.
        found: what has been read already.
    """
    if found is None:
        found = {path: reading for stage in stages for path, reading in read_annotations(cfg, stage).items()}
    for path, reading in found.items():
        if reading.changed:
            folder = tempfile.mkdtemp(prefix='cvt_dense_')
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            file = Path(folder, f'{path}.json')
            file.write_text(json.dumps(reading.content))
            setting = path.split('.')[0]
            dict(walk(cfg[setting], setting))[path]['ann_file'] = str(file)
