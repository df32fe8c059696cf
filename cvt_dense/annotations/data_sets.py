"""Read the COCO files of a config before its data sets are built, and let data sets and evaluators use that content."""
import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from mmengine.logging import print_log

from ..config.settings import CocoFile
from ..errors import UserError
from .coco import Annotations, read


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
        except (OSError, ValueError) as error:
            raise UserError(f'{file.setting}.ann_file={file.path!r}: {error}') from error
        readings[file.setting] = cache[key]
    return readings


def check_annotations(files: Sequence[CocoFile], stage: str, needed: bool) -> dict[str, Annotations]:
    """Read the COCO files of a stage, and log what is not learnt or scored, with an example for each reason.

    Args:
        files: those of the stage.
        stage: 'train', 'val' or 'test'.
        needed: whether objects are needed; only a test with ``format_only``, as for COCO's test-dev, needs none.

    Returns:
        See :func:`read_annotations`.

    Raises:
        UserError: a file is refused (see :func:`read_annotations`), objects are needed and none is left, or the
            evaluator's file has other objects than the data set.
    """
    readings = read_annotations(files)
    lines, learnt, objects, images = [], 0, set(), set()
    for file in files:
        reading = readings[file.setting]
        others = {(entry['image_id'], reading.classes.get(entry['category_id']), *entry['bbox']): entry['id']
                  for entry in reversed(reading.content['annotations'])}
        if not file.evaluates:
            number, reasons = _losses(reading, {*others.values()}, file, stage == 'train')
            lines += [f'{file.setting}: of {file.node["ann_file"]!r}, {reason}.' for reason in reasons]
            if stage == 'test' and reading.renumbered:
                lines.append(f'{file.setting}: in results that are written, category ids are {reading.renumbered}.')
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
    return readings


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


def use_annotations(files: Sequence[CocoFile], readings: dict[str, Annotations] | None, folder: str) -> None:
    """Let data sets and evaluators read the content of :func:`read_annotations`, where it differs from the user's file.

    Each process writes that content for itself, since hosts may share no disk, and processes that share one write the
    same file. Checkpoints keep the user's config.

    Args:
        files: those of the run, whose configs are changed.
        readings: their content, if this process has read them already.
        folder: the files are written below it, in ``annotations``.
    """
    readings = read_annotations(files) if readings is None else readings
    for file in files:
        if readings[file.setting].changed:
            path = os.path.abspath(os.path.join(folder, 'annotations', f'{file.setting}.json'))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with tempfile.NamedTemporaryFile('w', dir=os.path.dirname(path), delete=False) as partial:
                partial.write(json.dumps(readings[file.setting].content))
            os.replace(partial.name, path)
            file.node['ann_file'] = path
