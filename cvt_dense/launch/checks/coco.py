"""Check annotation files in COCO's format before a data set is built."""
import difflib
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ...config.data_sets import leaf_datasets, metainfo
from ...config.nodes import dicts, type_name
from ...errors import UserError

# Keys that MMDetection and COCO's scores read.
NEEDED = dict(images=('id', 'file_name', 'height', 'width'), categories=('id', 'name'),
              annotations=('id', 'image_id', 'category_id', 'bbox', 'area', 'iscrowd'))


def check_annotations(cfg: Config, stages: Sequence[str]) -> None:
    """Check the COCO files of every data loader, unless they are not on the file system.

    Raises:
        UserError: a file is not in COCO's format; ``classes`` is not the file's categories or in another order;
            annotations name unknown categories; there is no annotation, or no mask where masks are loaded; the
            evaluator's file has other objects. Without annotations only a test may be that writes its results down
            (``format_only``), as of COCO's test-dev.
    """
    for stage in stages:
        where = f'{stage}_dataloader'
        datasets = [dataset for dataset in leaf_datasets((cfg.get(where) or {}).get('dataset') or {})
                    if type_name(dataset) == 'CocoDataset' and not dataset.get('backend_args')]
        if not datasets:
            continue
        files = [os.path.join(dataset.get('data_root') or '', dataset.get('ann_file', '')) for dataset in datasets]
        contents = [_read(file, where) for file in files]
        objects = [_check_objects(file, content, dataset, metainfo(dataset, cfg, 'classes'), where)
                   for file, content, dataset in zip(files, contents, datasets)]
        evaluators = cfg.get(f'{stage}_evaluator') or []
        evaluators = evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]
        scored = [evaluator for evaluator in evaluators if not evaluator.get('format_only')]
        if not any(objects) and (scored or stage == 'train'):
            raise UserError(f'{where}: no image in {files} has an annotation of the classes. To write predictions '
                            f'without scores, set {stage}_evaluator.format_only=True.')
        for evaluator in scored:
            if evaluator.get('ann_file') and type_name(evaluator) in ('CocoMetric', 'FasterCocoMetric'):
                _check_evaluator(evaluator['ann_file'], files, contents, stage)


def _read(file: str, where: str) -> dict[str, list[dict[str, Any]]]:
    """Return the content of a file in COCO's format, with an empty list of annotations if it has none."""
    try:
        with open(file, encoding='utf-8') as f:
            content = json.load(f)
        content.setdefault('annotations', [])  # COCO's files of test images have none
        for name, keys in NEEDED.items():
            scored = where != 'train_dataloader'  # only scores need iscrowd
            for problem, found in _problems(content[name], [key for key in keys if key != 'iscrowd' or scored]):
                if found:
                    raise ValueError(f'{len(found)} {name} {problem}, e.g. {str(found[0])[:200]}')
    except OSError as error:
        raise UserError(f'{where}: the annotation file {file!r} cannot be read: {error.strerror}.') from error
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise UserError(f'{where}: {file!r} is not JSON in COCO format: {error}.') from error
    if any(annotation['id'] == 0 for annotation in content['annotations']):
        print_log(f'{where}: {file!r} has an annotation with the id 0, which scores take for "missed": number '
                  'annotations from 1.', logger='current', level=30)
    return content


def _problems(items: list[dict[str, Any]], keys: Sequence[str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield what would end a worker or an evaluation, or lose an object silently, and the items for which it is so."""
    for key in keys:
        yield f'have no {key!r}', [item for item in items if key not in item]
    ids = Counter(item['id'] for item in items)
    yield 'have the id of another one, and would be lost', [item for item in items if ids[item['id']] > 1]
    if 'bbox' in keys:
        yield 'have no bbox of four numbers', [item for item in items if not _is_box(item['bbox'])]


def _is_box(box: Any) -> bool:
    return isinstance(box, list) and len(box) == 4 and all(isinstance(side, (int, float)) for side in box)


def _check_objects(file: str, content: dict[str, Any], dataset: dict[str, Any], classes: Sequence[str],
                   where: str) -> list[dict[str, Any]]:
    """Compare an annotation file with the classes and the pipeline of its data set.

    Args:
        file: path, for messages.
        content: the parsed file.
        dataset: config of the data set.
        classes: names that the network learns.
        where: setting that names the data set, for messages.

    Returns:
        The annotations of the classes in the images that the file lists; of training, those that MMDetection learns.

    Raises:
        UserError: classes, categories, annotations or masks do not match.
    """
    names = [category['name'] for category in content['categories']]
    unknown = [name for name in classes if name not in names]
    if unknown:
        near = difflib.get_close_matches(unknown[0], names, 1)
        raise UserError(f'{where}: metainfo.classes has {unknown[:5]}, which are no categories of {file!r}. ' + (
            f'Did you mean {near[0]!r}? ' if near else '') + f'It has {len(names)}: {names[:20]}. A single class needs '
            "a comma, ('cat', ).")
    in_file = [name for name in names if name in set(classes)]
    if in_file != list(classes):
        raise UserError(f'{where}: metainfo.classes={list(classes)} must be in the order of the categories in '
                        f'{file!r}, each once, or predictions would get wrong names: write {in_file}.')
    categories = {category['id']: category['name'] for category in content['categories']}
    lost = [annotation for annotation in content['annotations'] if annotation['category_id'] not in categories]
    if lost:
        raise UserError(f'{where}: {len(lost)} annotations in {file!r} have a category_id that the file does not list, '
                        f'e.g. annotation {lost[0]["id"]} with category_id {lost[0]["category_id"]!r}.')
    images = {image['id'] for image in content['images']}
    named = [annotation for annotation in content['annotations'] if categories[annotation['category_id']] in in_file]
    objects = [annotation for annotation in named if annotation['image_id'] in images and (
        where != 'train_dataloader' or annotation['area'] > 0 and min(annotation['bbox'][2:]) >= 1)]
    if len(objects) < len(named):
        print_log(f'{where}: {len(named) - len(objects)} of {len(named)} annotations in {file!r} are left out: no '
                  'image has their image_id, or, in training, area or a side is less than 1 pixel.', 'current', 30)
    empty = len(images - {annotation['image_id'] for annotation in objects})
    if empty and where == 'train_dataloader' and (dataset.get('filter_cfg') or {}).get('filter_empty_gt'):
        print_log(f'{where}: {empty} of {len(images)} images in {file!r} have no object of the classes and are left '
                  'out; with filter_cfg.filter_empty_gt=False they are not.', 'current', 30)
    if any(node.get('with_mask') for node in dicts(dataset.get('pipeline'))):
        # MMDetection ignores a mask without an area in training, but pycocotools cannot evaluate it.
        lenient = where == 'train_dataloader' and any(map(_has_mask, objects))
        bare = [annotation for annotation in objects if not annotation.get('ignore')
                and not (annotation.get('segmentation') if lenient else _has_mask(annotation))]
        if bare:
            raise UserError(f'{where}: {len(bare)} of {len(objects)} annotations in {file!r} have no mask of three '
                            f'points or more, e.g. annotation {bare[0]["id"]}, but the pipeline loads masks '
                            '(with_mask). fasterrcnn_cvt13_custom.py learns from boxes alone.')
    return objects


def _has_mask(annotation: dict[str, Any]) -> bool:
    """Return whether there are run lengths or a polygon of 3 points: MMDetection leaves out any other mask."""
    mask = annotation.get('segmentation')
    return bool(mask) and (isinstance(mask, dict) or any(
        isinstance(polygon, list) and len(polygon) >= 6 for polygon in mask))


def _check_evaluator(given: str, files: list[str], contents: list[dict[str, Any]], stage: str) -> None:
    """Check that an evaluator's file, if it is none of the data set's ``files``, has the same objects in their images.

    It may have more images.
    """
    if os.path.realpath(given) in map(os.path.realpath, files):
        return
    images = {image['id'] for content in contents for image in content['images']}
    ours, theirs = ({(found['image_id'], found['category_id'], *found['bbox']) for content in group
                     for found in content['annotations'] if found['image_id'] in images}
                    for group in (contents, [_read(given, f'{stage}_evaluator')]))
    if ours != theirs:
        raise UserError(f'{stage}_evaluator.ann_file is {given!r}, but {stage}_dataloader reads {files}, with other '
                        'objects. Give both the same file.')
