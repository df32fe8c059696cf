"""Check annotation files in COCO's format."""
import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from mmengine.logging import print_log

from ...errors import UserError
from ...nodes import dicts

# Keys that MMDetection and COCO's scores read, and the values to write where they are unknown.
NEEDED = dict(
    images=dict(id='', file_name='', height="the image's height in pixels", width="the image's width in pixels"),
    categories=dict(id='', name=''),
    annotations=dict(id='a number from 1 of its own', image_id='', category_id='', bbox='[left, top, width, height]',
                     area='of the mask, or width * height of the box', iscrowd='0'))


def read(file: str, where: str) -> dict[str, Any]:
    """Return the content of a file in COCO's format, with an empty list of annotations if it has none."""
    try:
        with open(file, encoding='utf-8') as f:
            content = json.load(f)
    except OSError as error:
        raise UserError(f'{where}: the annotation file {file!r} cannot be read: {error.strerror}.') from error
    except ValueError as error:  # JSON and text decoding errors
        raise UserError(f'{where}: {file!r} is not JSON ({error}).') from error
    lists = ('images', 'annotations', 'categories')
    if isinstance(content, dict):
        content.setdefault('annotations', [])  # COCO's files of test images have none
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in lists):
        raise UserError(f'{where}: {file!r} is JSON, but not in COCO format: a dict with the lists {", ".join(lists)} '
                        'is expected.')
    for name, keys in NEEDED.items():
        if where == 'train_dataloader':
            keys = {key: remedy for key, remedy in keys.items() if key != 'iscrowd'}  # which scores alone need
        _check_items(name, content[name], keys, f'{where}: {file!r}')
    return content


def _check_items(name: str, items: list[dict[str, Any]], keys: dict[str, str], file: str) -> None:
    """Check for mistakes that would raise a KeyError in a worker or an evaluation, or silently lose objects."""
    for key, remedy in keys.items():
        bare = [item for item in items if not isinstance(item, dict) or key not in item]
        if bare:
            example = bare[0]
            if isinstance(example, dict) and 'segmentation' in example:
                example = dict(example, segmentation='...')
            raise UserError(f'{file}: {len(bare)} of {len(items)} {name} have no {key!r}, e.g. {str(example)[:200]}. '
                            f'Add it to each{f": {remedy}" if remedy else ""}.')
    ids = [item['id'] for item in items]
    if len(set(ids)) < len(ids):
        twice = next(number for number, count in Counter(ids).items() if count > 1)
        raise UserError(f'{file}: {len(ids) - len(set(ids))} of {len(ids)} {name} have the id of another one, '
                        f'e.g. {twice!r}, and would be lost. Give each of them its own number.')
    if name == 'annotations' and 0 in ids:
        print_log(f'{file}: an annotation has the id 0, which scores take for "not found": that object counts as '
                  'missed. Number annotations from 1.', logger='current', level=30)
    wrong = [item for item in items if 'bbox' in keys and not _is_box(item['bbox'])]
    if wrong:
        raise UserError(f'{file}: {len(wrong)} of {len(items)} {name} have no box of four numbers, [left, top, width, '
                        f'height], e.g. annotation {wrong[0]["id"]} with {wrong[0]["bbox"]!r}.')


def _is_box(box: Any) -> bool:
    return isinstance(box, list) and len(box) == 4 and all(isinstance(side, (int, float)) for side in box)


def check(file: str, content: dict[str, Any], dataset: dict[str, Any], classes: Sequence[str],
                     where: str) -> int:
    """Compare an annotation file with the classes and the pipeline of its data set.

    Args:
        file: path, for messages.
        content: the parsed file.
        dataset: config of the data set.
        classes: names that the network learns.
        where: setting that names the data set, for messages.

    Returns:
        Number of images that have an annotation of one of the classes.

    Raises:
        UserError: classes, categories, annotations or masks do not match.
    """
    if isinstance(classes, str):
        raise UserError(f'{where}: classes={classes!r} is one string, not a list of names; write ({classes!r}, ).')
    names = [category['name'] for category in content['categories']]
    unknown = [name for name in classes if name not in names]
    if unknown:
        raise UserError(f'{where}: classes {unknown[:5]} ({len(unknown)} of {len(classes)}) are no categories of '
                        f'{file!r}, which has {names[:20]}. Write metainfo.classes as they are spelled there.')
    in_file = [name for name in names if name in set(classes)]
    if in_file != list(classes):
        raise UserError(f'{where}: metainfo.classes={list(classes)} must be in the order of the categories in {file!r} '
                        f'and name each once, or predictions would get wrong names: write {in_file}.')

    used = {category['id'] for category in content['categories'] if category['name'] in set(classes)}
    images = {image['id'] for image in content['images']}
    categories = {category['id'] for category in content['categories']}
    lost = [annotation for annotation in content['annotations'] if annotation.get('category_id') not in categories]
    if lost:
        raise UserError(f'{where}: {len(lost)} annotations in {file!r} have a category_id that the file does not list, '
                        f'e.g. annotation {lost[0].get("id")} with category_id {lost[0].get("category_id")!r}.')
    known = [annotation for annotation in content['annotations'] if annotation.get('image_id') in images]
    if len(known) < len(content['annotations']):
        print_log(f'{where}: {len(content["annotations"]) - len(known)} annotations in {file!r} are of images that it '
                  'does not list, and are left out.', logger='current')
    objects = [annotation for annotation in known if annotation['category_id'] in used]
    if any(node.get('with_mask') for node in dicts(dataset.get('pipeline'))):
        bare = [annotation for annotation in objects
                if not annotation.get('segmentation') and not annotation.get('ignore')]
        # MMDetection ignores such an object in training, but pycocotools cannot evaluate it.
        if not where.startswith('train') or not any(map(_has_mask, objects)):
            bare = [annotation for annotation in objects if not _has_mask(annotation) and not annotation.get('ignore')]
        if bare:
            raise UserError(f'{where}: {"no" if len(bare) == len(objects) else "not every"} annotation in {file!r} has '
                            f'a mask ({len(bare)} of {len(objects)} are without, e.g. annotation {bare[0].get("id")}), '
                            'but the pipeline loads masks (with_mask). Add a "segmentation" to each annotation, with '
                            'polygons of three points or more, or use '
                            'fasterrcnn_cvt13_custom.py or retinanet_cvt13_custom.py, which learn from boxes alone, '
                            'with the same lines at their top.')
    annotated = len({annotation['image_id'] for annotation in objects})
    number = len(images) - annotated
    if number and annotated:
        print_log(f'{where}: {number} of {len(images)} images have no annotation of the classes.', logger='current')
    if len(in_file) < len(names):
        print_log(f'{where}: the categories {[name for name in names if name not in classes][:10]} are not among the '
                  'classes and are left out.', logger='current')
    return annotated


def _has_mask(annotation: dict[str, Any]) -> bool:
    """Return whether there are run lengths or a polygon of 3 points: MMDetection leaves out any other mask."""
    mask = annotation.get('segmentation')
    return bool(mask) and (isinstance(mask, dict) or any(
        isinstance(polygon, list) and len(polygon) >= 6 for polygon in mask))


def check_evaluator(given: str, files: dict[str, dict[str, Any]], stage: str) -> None:
    """Check that an evaluator's own file has the same objects in the data set's images.

    Args:
        given: the evaluator's ``ann_file``.
        files: contents of the data set's annotation files, by path.
        stage: 'val' or 'test'.

    Raises:
        UserError: the images or their objects differ.
    """
    if os.path.realpath(given) in [os.path.realpath(file) for file in files]:
        return
    images = {image['id'] for content in files.values() for image in content['images']}

    def objects(contents: Iterable[dict[str, Any]]) -> set[tuple]:
        return {(a['image_id'], a['category_id'], *a['bbox'])
                for content in contents for a in content['annotations'] if a['image_id'] in images}

    content = read(given, f'{stage}_evaluator')
    if not images <= {image['id'] for image in content['images']} or objects([content]) != objects(files.values()):
        raise UserError(f'{stage}_evaluator.ann_file is {given!r}, but {stage}_dataloader reads {list(files)}, with '
                        'other images or objects: scores would be of those. Give both the same file.')
