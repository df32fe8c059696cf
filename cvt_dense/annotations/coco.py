"""Read a file in COCO's format, once.

What learns, scores, draws or converts such a file uses the content of :class:`Annotations` alone. MMDetection and
pycocotools test nothing: text, null or NaN end a run late or count as hits, and other objects are lost in silence.
"""
import json
import math
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from ..images import files_below, find_missing

MANY = 0.1  # fraction of the boxes from which on a fault is one of the whole file
FAR = 10**6  # pixels from an image; pycocotools stores each step along a polygon's edges, and crashes far outside


def finite(values: Sequence[Any]) -> bool:
    """Return whether all values are finite numbers."""
    try:
        return math.isfinite(sum(values))  # each is a number then
    except (TypeError, OverflowError):
        return False


def _is_id(value: Any) -> bool:
    return isinstance(value, str) or finite([value]) and value == int(value)


def _is_segmentation(value: Any) -> bool:
    """Return whether a value is empty, polygons or run lengths; uncompressed ones are a list."""
    if isinstance(value, list):
        return all(isinstance(polygon, list) and len(polygon) % 2 == 0 and finite(polygon)
                   and max(polygon, default=0) < FAR and min(polygon, default=0) > -FAR for polygon in value)
    if not value or not isinstance(value, dict):
        return not value
    counts = value.get('counts')
    return isinstance(counts, str) or isinstance(counts, list) and {*map(type, counts)} == {int} and min(counts) >= 0


Test = tuple[Callable[[Any], bool], str]
ID: Test = _is_id, 'a whole number or text'
NAME: Test = lambda value: isinstance(value, str) and bool(value), 'text'
SIDE: Test = lambda value: finite([value]) and value >= 1 and value == int(value), 'a whole number of pixels from 1'
FLAG: Test = lambda value: value in (0, 1), '0 or 1'
BOX: Test = lambda value: isinstance(value, list) and len(value) == 4 and finite(value), 'four finite numbers'
FIELDS: dict[str, dict[str, Test]] = dict(
    images=dict(id=ID, file_name=NAME, width=SIDE, height=SIDE),
    categories=dict(id=ID, name=NAME),
    annotations=dict(
        id=ID, image_id=ID, category_id=ID, bbox=BOX, iscrowd=FLAG, ignore=FLAG, area=(
            lambda value: finite([value]) and 0 <= value <= 1e10, 'a number from 0 to 1e10, up to which pycocotools '
            'scores'), segmentation=(_is_segmentation, 'a list of polygons, each an even number of finite coordinates '
                                     f'below {FAR}, or run lengths')))
OPTIONAL = ('area', 'ignore', 'iscrowd', 'segmentation')


class Annotations:
    """The content of a file in COCO's format; every entry can be learnt, scored and drawn.

    Boxes are cut to their image; an object that is ignored is a crowd, which is neither learnt nor scored; each object
    has ``iscrowd``, and a segmentation only if it has a polygon of three points or run lengths.

    Args:
        content: the parsed file, which is changed.
        folder: folder of its images, to find those whose names are spelt otherwise; None: they are not looked for.

    Attributes:
        content: ``images``, ``annotations`` and ``categories`` as lists of dicts.
        changed: whether it differs from what the file holds.
        total: number of annotations in the file.
        images: the images by id.
        classes: names of the learnt categories by id, from :meth:`use_classes` on.
        renumbered: the categories' ids by those in the file, if :meth:`use_classes` has changed them.
        counts: ids of the annotations that are changed or left out, by the reason.

    Raises:
        ValueError: a value that has no meaning, with the id of its entry; or the whole file means something else.
    """

    def __init__(self, content: Any, folder: str | None = None):
        if not isinstance(content, dict):
            raise ValueError('it is no object with "images", "annotations" and "categories"')
        self.content, self.changed, self.classes, self.renumbered = content, False, {}, {}
        self.counts: dict[str, list[Any]] = defaultdict(list)
        content.setdefault('annotations', [])  # COCO's files of test images have none
        for kind, fields in FIELDS.items():
            _check_fields(kind, content.get(kind), fields)
        annotations = content['annotations']
        for kind, key in (('images', 'image_id'), ('categories', 'category_id')):
            ids = [entry['id'] for entry in content[kind]] + [entry[key] for entry in annotations]
            if {*map(type, ids)} > {str}:
                text = next(value for value in ids if isinstance(value, str))
                raise ValueError(f'"id" of "{kind}" and {key} are partly numbers and partly strings, such as {text!r}; '
                                 'write numbers everywhere')
        self.images, self.total = {image['id']: image for image in content['images']}, len(annotations)
        for image in content['images']:
            if isinstance(image['width'], float) or isinstance(image['height'], float):
                self.change(image, width=int(image['width']), height=int(image['height']))
        self._spell_file_names(folder)
        self._keep_objects()
        self._cut_boxes()
        self._clean_segmentations()
        self._check_segmentations()
        annotations = content['annotations']
        self.changed |= len(annotations) < self.total
        if any(isinstance(entry['id'], str) or entry['id'] < 1 for entry in annotations):
            for number, entry in enumerate(annotations, 1):  # pycocotools takes 0 for "missed"
                self.change(entry, id=number)

    def change(self, entry: dict[str, Any], **values: Any) -> None:
        """Change an entry of the content."""
        entry.update(values)
        self.changed = True

    def _spell_file_names(self, folder: str | None) -> None:
        images = self.content['images']
        if folder is not None:
            missing = set(find_missing(os.path.join(folder, image['file_name']) for image in images))
            names = [os.path.relpath(path, folder) for path in files_below(folder)] if missing else []
            spelled = {spelling(name): name for name in names}
            for image in images:
                if os.path.join(folder, image['file_name']) in missing and spelling(image['file_name']) in spelled:
                    self.change(image, file_name=spelled[spelling(image['file_name'])])
        numbers = Counter(os.path.normpath(image['file_name']) for image in images)
        twice = [image for image in images if numbers[os.path.normpath(image['file_name'])] > 1]
        if twice:
            raise ValueError(f'images {[image["id"] for image in twice[:5]]} have the same file_name '
                             f'{twice[0]["file_name"]!r}; give each image its own file, or merge the entries')

    def _keep_objects(self) -> None:
        categories = {category['id'] for category in self.content['categories']}
        kept = []
        for entry in self.content['annotations']:
            attributes = entry.get('attributes')
            turned = attributes.get('rotation') if isinstance(attributes, dict) else 0
            if turned and (not finite([turned]) or turned % 180):
                raise ValueError(f'annotation {entry["id"]!r} has attributes.rotation={turned!r}, but a bbox is not '
                                 'turned; export polygons, or boxes around the turned ones')
            reason = ('have an image_id that no image has' if entry['image_id'] not in self.images else
                      'have a category_id that no category has' if entry['category_id'] not in categories else
                      'have a bbox without area' if min(entry['bbox'][2:]) <= 0 else '')
            if reason:
                self.counts[f'{reason}, and are left out'].append(entry['id'])
                continue
            if entry.get('ignore') or not {'iscrowd', 'area'} <= entry.keys():
                self.change(entry, iscrowd=int(bool(entry.get('iscrowd') or entry.get('ignore'))), ignore=0,
                            area=entry.get('area', entry['bbox'][2] * entry['bbox'][3]))
            kept.append(entry)
        self.content['annotations'] = kept

    def _cut_boxes(self) -> None:
        objects = self.content['annotations']
        boxes = np.array([entry['bbox'] for entry in objects], float).reshape(-1, 4)
        images = [self.images[entry['image_id']] for entry in objects]
        sizes = np.array([[image['width'], image['height']] for image in images], float).reshape(-1, 2)
        start, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
        before, after = (start < -1).any(1), (end > sizes + 1).any(1)
        _refuse_many(objects, (np.abs(boxes) < 2).all(1), 'a bbox of numbers from 0 to 1: it is relative')
        far = (end > 1.05 * sizes + 1).any(1)
        if before.sum() <= MANY * far.sum():
            _refuse_many(objects, far, 'a bbox that ends outside of the image, and few begin there: they are corners, '
                         'centres, or of another size')
        cut_start, cut_end = np.clip(start, 0, sizes), np.clip(end, 0, sizes)
        gone = (cut_end <= cut_start).any(1)
        for i in np.flatnonzero(gone | before | after).tolist():
            self.counts['lie outside of their image, and are left out' if gone[i] else
                        'reach beyond their image by more than a pixel, and are cut'].append(objects[i]['id'])
            box = [*cut_start[i].tolist(), *(cut_end[i] - cut_start[i]).tolist()]
            self.change(objects[i], bbox=box, area=min(objects[i]['area'], box[2] * box[3]))
        self.content['annotations'] = [entry for entry, outside in zip(objects, gone.tolist()) if not outside]

    def _clean_segmentations(self) -> None:
        for entry in self.content['annotations']:
            mask, image = entry.get('segmentation') or [], self.images[entry['image_id']]
            size = [image['height'], image['width']]
            if isinstance(mask, dict) and (mask.get('size') != size or _pixels(mask['counts']) != size[0] * size[1]):
                raise ValueError(f'annotation {entry["id"]!r} has a segmentation of size {mask.get("size")!r} and of '
                                 f'{_pixels(mask["counts"])} pixels, but [height, width] of its image are {size}')
            if isinstance(mask, list) and mask and min(map(len, mask)) < 6:
                self.change(entry, segmentation=[polygon for polygon in mask if len(polygon) >= 6])
                self.counts['have a mask with polygons of fewer than three points'].append(entry['id'])

    def _check_segmentations(self) -> None:
        objects = [entry for entry in self.content['annotations'] if entry.get('segmentation')]
        objects = objects[::len(objects) // 10_000 + 1]  # a sample suffices
        boxes = np.array([entry['bbox'] for entry in objects], float).reshape(-1, 2, 2).cumsum(1)
        masks = np.array([_corners(entry['segmentation']) for entry in objects]).reshape(-1, 2, 2)
        shared = np.minimum(boxes[:, 1], masks[:, 1]) - np.maximum(boxes[:, 0], masks[:, 0])
        wrong = shared.clip(0).prod(1) < np.diff(masks, axis=1).prod((1, 2)) / 2
        _refuse_many(objects, wrong, 'a segmentation outside of the bbox: it is of (y, x), relative, of another size, '
                     'or in rows')

    def use_classes(self, classes: Sequence[str], masks: bool = False) -> None:
        """Give the categories such numbers that MMDetection and pycocotools show each class in its place.

        Args:
            classes: names of the classes that are learnt, by number; a file without other categories may lack some.
            masks: whether masks are needed: an object without one becomes a crowd, whose mask is its box.

        Raises:
            ValueError: a class is no category, or has two.
        """
        rank, categories = {name: i for i, name in enumerate(classes)}, self.content['categories']
        names = [category['name'] for category in categories]
        lacking = [name for name in classes if name not in names] if rank.keys() >= {*names} else []
        names += lacking
        for name in classes:
            if names.count(name) != 1 or list(classes).count(name) != 1:
                raise ValueError(f'{name!r} must occur once in metainfo.classes and once in the {len(names)} '
                                 f"categories {names[:20]}; write a single class with a comma, ('cat', )")
        ordered = sorted(categories, key=lambda category: category['id'])
        texts = any(isinstance(category['id'], str) for category in categories)  # which pycocotools takes for lists
        if texts or [category['name'] for category in ordered if category['name'] in rank] != list(classes):
            categories = [*categories, *(dict(id=name, name=name) for name in lacking)]
            ordered = sorted(categories, key=lambda category: rank.get(category['name'], len(rank)))
            self.renumbered = new = {category['id']: number for number, category in enumerate(ordered, 1)}
            for category in ordered:
                self.change(category, id=new[category['id']])
            for entry in self.content['annotations']:
                self.change(entry, category_id=new[entry['category_id']])
        self.changed |= ordered != categories
        self.content['categories'] = ordered
        self.classes = {category['id']: category['name'] for category in ordered if category['name'] in rank}
        if masks:
            self._ignore_without_masks()

    def _ignore_without_masks(self) -> None:
        counted = set().union(*self.counts.values())
        for entry in self.content['annotations']:
            if not entry.get('segmentation'):
                x, y, w, h = entry['bbox']
                self.change(entry, iscrowd=1, segmentation=[[x, y, x + w, y, x + w, y + h, x, y + h]])
                self.counts['have no mask of three points, and are ignored; without with_mask, as in '
                            'fasterrcnn_cvt13_custom.py, they are learnt'] += {entry['id']} - counted


def read(file: str | os.PathLike, folder: str | None = None) -> Annotations:
    """Return the content of a file in COCO's format; see :class:`Annotations`.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not in COCO's format; the message names the file.
    """
    with open(file, 'rb') as opened:
        data = opened.read()
    try:
        annotations = Annotations(json.loads(data), folder)  # Python finds out about UTF-16 and byte order marks
    except ValueError as error:
        raise ValueError(f'{str(file)!r} is not in COCO format: {error}.') from error
    annotations.changed |= not data.lstrip().startswith(b'{')
    return annotations


def spelling(name: str) -> str:
    """Return the same text for the paths that Windows, browsers and macOS make of one."""
    return str(PurePosixPath(unicodedata.normalize('NFC', unquote(name.replace('\\', '/')))))


def _check_fields(kind: str, entries: Any, fields: dict[str, Test]) -> None:
    if not isinstance(entries, list) or {*map(type, entries)} - {dict}:
        raise ValueError(f'"{kind}" is no list of objects')
    for key, (allowed, needed) in fields.items():
        wrong = [entry for entry in entries if not (allowed(entry[key]) if key in entry else key in OPTIONAL)]
        if wrong:
            raise ValueError(f'{len(wrong)} of {len(entries)} {kind} have no valid {key!r}, which is {needed}; e.g. '
                             f'that with the id {wrong[0].get("id")!r} has {key}={str(wrong[0].get(key))[:200]}')
    numbers = Counter(entry['id'] for entry in entries)
    if len(numbers) < len(entries):
        raise ValueError(f'several {kind} have the id {numbers.most_common(1)[0][0]!r}; ids must be unique')


def _refuse_many(objects: list[dict[str, Any]], wrong: np.ndarray, suspicion: str) -> None:
    """Raise ``ValueError`` if too many objects are wrong for a mistake in a few of them."""
    if wrong.sum() > max(3, MANY * len(wrong)):
        entry = objects[wrong.argmax()]
        raise ValueError(f'{wrong.sum()} of {len(wrong)} annotations have {suspicion}; e.g. annotation {entry["id"]!r} '
                         f'with the bbox {entry["bbox"]}. Write bbox as [x, y, width, height] in pixels, where x and y '
                         'are the corner at the top left, and polygons as [[x, y, x, y, ...]] in the same pixels')


def _corners(mask: dict[str, Any] | list[list[float]]) -> np.ndarray:
    """Return the least and the greatest (x, y) of polygons or run lengths."""
    if isinstance(mask, list):
        points = np.concatenate(mask).reshape(-1, 2)
        return np.array([points.min(0), points.max(0)])
    from pycocotools import mask as coco_mask  # comes with MMDetection
    return coco_mask.toBbox(run_lengths(mask, *mask['size'])).reshape(2, 2).cumsum(0)


def run_lengths(mask: dict[str, Any] | list[list[float]], height: int, width: int) -> dict[str, Any]:
    """Return COCO's polygons or run lengths as compressed run lengths."""
    from pycocotools import mask as coco_mask
    if isinstance(mask, list):
        return coco_mask.merge(coco_mask.frPyObjects(mask, height, width))
    return coco_mask.frPyObjects(mask, height, width) if isinstance(mask['counts'], list) else mask


def _pixels(counts: str | list[int]) -> int:
    """Return the sum of run lengths, which COCO compresses as differences of numbers of 5 bits a character."""
    if isinstance(counts, list):
        return sum(counts)
    bits = np.frombuffer(counts.encode(), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(bits & 32 == 0)
    if not len(ends) or ends[-1] != len(bits) - 1 or bits.min() < 0 or bits.max() > 63:
        return -1
    lengths = np.diff(ends, prepend=-1)
    shifts = 5 * (np.arange(len(bits)) - np.repeat(ends + 1 - lengths, lengths)) % 64
    values = np.add.reduceat((bits & 31) << shifts, ends + 1 - lengths)
    values -= np.where(bits[ends] & 16, 32 << shifts[ends], 0)  # the highest bit is the sign
    for first in (1, 2):
        values[first::2] = values[first::2].cumsum()
    return int(values.sum()) if values.min() >= 0 else -1
