"""Find out what is wrong in the content of a file in COCO's format.

MMDetection and pycocotools test nothing: text, null or NaN end a run late or count as hits, and other objects are lost
in silence. :func:`check_values` raises an error for values that cannot be interpreted. A :class:`Fault` can be: a run
that would learn or score it wrongly refuses the file, and the conversion repairs it.
"""
import math
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import compress
from typing import Any

import numpy as np

from .names import is_no_class

MANY = 0.1  # fraction of the boxes from which on a fault is one of the whole file
FAR = 10**6  # pixels from an image; pycocotools stores each step along a polygon's edges, and crashes far outside
Entry = dict[str, Any]


class Fault(Enum):
    """Enumerate the kinds of faulty entries, each with its message, its repair and the use that it forbids.

    Attributes:
        text: what is said of the entries.
        repair: what the conversion does with them; '' where it changes nothing.
        refused: the use that would be wrong: 'read' by any data set, 'scored', 'masks' that are learnt or scored, or
            'scored masks'; '' where the objects are merely not learnt.
    """

    def __init__(self, text: str, repair: str, refused: str):
        self.text, self.repair, self.refused = text, repair, refused

    DECIMAL = 'images have a width or height with a decimal point', 'made whole', 'scored masks'
    NAME_TWICE = 'categories have the name of another', 'merged', 'read'
    ORDER = 'categories have ids that are no integers, or do not ascend as the file lists them', 'numbered', 'scored'
    OWN_ID = 'annotations have no id of their own', 'numbered', 'read'
    NUMBER = 'annotations have the id 0, "no match" to pycocotools, or one that is text', 'numbered', 'scored'
    UNKNOWN = 'annotations have an image_id of no image or a category_id of no class of the run', 'left out', ''
    NOWHERE = 'annotations have a bbox without area in their image', 'left out', 'scored'
    BEYOND = 'annotations have a bbox that ends more than a pixel outside of their image', 'cut', 'read'
    REPEATED = 'annotations repeat the bbox and the class of another', 'left out', ''
    NO_AREA = 'annotations have no area, or 0', 'given the area of their bbox', 'read'
    IGNORED = 'annotations have ignore=1 without iscrowd=1', 'made crowds', 'scored'
    NO_CROWD = 'annotations have no iscrowd', 'given iscrowd=0', 'scored'
    SHORT = 'annotations have polygons of fewer than three points', 'given the other polygons', 'scored masks'
    NO_MASK = 'annotations have no mask of three points', 'made crowds', 'masks'
    CROWD = 'annotations are crowds', '', ''
    SMALL = 'annotations have a side below one pixel or no area, and are nearly never matched', '', ''
    # What the conversion alone meets.
    NO_IMAGE = 'annotations have no image file', 'left out', ''
    NO_OBJECTS = 'images have no annotations', 'kept without objects', ''
    NOT_NAMED = 'images are named by no annotation file', 'left out', ''
    NOT_LISTED = 'images are in no list of data.yaml or ImageSets', 'left out', ''
    OTHER_JSON = 'JSON files have no images, annotations and categories', 'left out', ''
    SHAPE = 'shapes are neither rectangles nor polygons', 'left out', ''
    BOX_ALONE = 'objects have a box alone', 'drawn as rectangles', ''


# Objects that are not learnt, or learnt twice; the log counts them.
LOST = Fault.UNKNOWN, Fault.NOWHERE, Fault.REPEATED, Fault.IGNORED, Fault.CROWD, Fault.SMALL


def finite(values: Iterable[Any]) -> bool:
    """Return whether all values are finite numbers."""
    try:
        return math.isfinite(sum(values))  # each is a number then
    except (TypeError, OverflowError):
        return False


def _is_segmentation(value: Any) -> bool:
    """Return whether a value is empty, polygons or run lengths; uncompressed ones are a list."""
    if isinstance(value, list):
        return all(isinstance(polygon, list) and len(polygon) % 2 == 0 and finite(polygon)
                   and max(map(abs, polygon), default=0) < FAR for polygon in value)
    if not value or not isinstance(value, dict):
        return not value
    counts = value.get('counts')
    return isinstance(counts, str) or isinstance(counts, list) and {*map(type, counts)} == {int} and min(counts) >= 0


Test = tuple[Callable[[Any], bool], str]
ID: Test = (lambda value: isinstance(value, (int, str)) or finite([value]) and value == int(value),
            'a whole number or text')
NAME: Test = lambda value: isinstance(value, str) and value != '', 'text'
SIDE: Test = (lambda value: finite([value]) and value >= 1 and value == int(value), 'a whole number of pixels from 1')
FLAG: Test = lambda value: value in (0, 1), '0 or 1'
BOX: Test = lambda value: isinstance(value, list) and len(value) == 4 and finite(value), 'four finite numbers'
FIELDS: dict[str, dict[str, Test]] = dict(
    images=dict(id=ID, file_name=NAME, width=SIDE, height=SIDE),
    categories=dict(id=ID, name=NAME),
    annotations=dict(
        id=ID, image_id=ID, category_id=ID, bbox=BOX, iscrowd=FLAG, ignore=FLAG,
        area=(lambda value: finite([value]) and value >= 0, 'a number from 0'),
        segmentation=(_is_segmentation, f'polygons, each an even number of coordinates below {FAR}, or run lengths')))
OPTIONAL = ('area', 'ignore', 'iscrowd', 'segmentation')  # and an annotation's id: a Fault


def check_values(content: Any) -> None:
    """Check that every value of a file's content has a meaning.

    Args:
        content: the parsed file; 'annotations' are added if it has none, as COCO's files of test images.

    Raises:
        ValueError: a value has no meaning, with the id of its entry; or the whole file means something else.
    """
    if not isinstance(content, dict):
        raise ValueError('it is no object with "images", "annotations" and "categories"')
    content.setdefault('annotations', [])
    for kind, fields in FIELDS.items():
        _check_fields(kind, content.get(kind), fields)
    for kind in ('images', 'categories'):
        ids = Counter(entry['id'] for entry in content[kind])
        if len(ids) < len(content[kind]):
            raise ValueError(f'several {kind} have the id {ids.most_common(1)[0][0]!r}; ids must be unique')
    ids, used = ({entry[key] for entry in content[kind]} for kind, key in (
        ('categories', 'id'), ('annotations', 'category_id')))
    if used - ids and {*map(type, ids | used)} == {int} and any(used <= {i + step for i in ids} for step in (-1, 1)):
        raise ValueError(f'the category_ids {sorted(used)} are shifted by one from the ids {sorted(ids)} of categories')
    files = Counter(os.path.normpath(image['file_name']) for image in content['images'])
    if len(files) < len(content['images']):
        raise ValueError(f'several images have the file_name {files.most_common(1)[0][0]!r}; merge the entries')
    for entry in content['annotations']:
        match entry.get('attributes'):
            case {'rotation': int() | float() as rotation} if rotation % 180:
                raise ValueError(f'annotation {entry.get("id")!r} is a box rotated by {rotation}°; write polygons')


def _check_fields(kind: str, entries: Any, fields: dict[str, Test]) -> None:
    if not isinstance(entries, list) or {*map(type, entries)} - {dict}:
        raise ValueError(f'"{kind}" is no list of objects')
    for key, (allowed, needed) in fields.items():
        optional = key in OPTIONAL or (kind, key) == ('annotations', 'id')
        wrong = [entry for entry in entries
                 if not (optional if (value := entry.get(key)) is None else allowed(value))]
        if wrong:
            raise ValueError(f'{len(wrong)} of {len(entries)} {kind} have no valid {key!r}, which is {needed}; e.g. '
                             f'that with the id {wrong[0].get("id")!r} has {key}={str(wrong[0].get(key))[:200]}')


def find_faults(content: Entry, classes: Sequence[str] | None = None) -> dict[Fault, list[Entry]]:
    """Return the faulty entries of a content that :func:`check_values` allows.

    Args:
        content: the parsed file, which stays as it is.
        classes: names of the categories that are used; None: all.

    Raises:
        ValueError: so many boxes or masks are wrong that they are of another kind; or a label is no class.
    """
    images, annotations = content['images'], content['annotations']
    categories = [category for category in content['categories'] if classes is None or category['name'] in classes]
    ids, names = [category['id'] for category in categories], [category['name'] for category in categories]
    owner, used = {image['id']: image for image in images}, {*ids}
    objects = [entry for entry in annotations if entry['image_id'] in owner and entry['category_id'] in used]
    meant = {category['id'] for category in categories if is_no_class(category['name'])}
    if meant and (without := [entry for entry in objects if entry['category_id'] in meant]):
        label = next(category['name'] for category in categories if category['id'] == without[0]['category_id'])
        raise ValueError(f'{len(without)} annotations, such as {without[0].get("id")!r}, have the label {label!r}, '
                         'which means void or background: remove them, or give them another label')
    counts = Counter(entry.get('id') for entry in annotations)
    return {
        Fault.DECIMAL: [image for image in images if {type(image['width']), type(image['height'])} != {int}],
        Fault.NAME_TWICE: [category for category in categories if names.count(category['name']) > 1],
        Fault.ORDER: [] if {*map(type, ids)} <= {int} and ids == sorted(ids) else categories,
        Fault.OWN_ID: [entry for entry in annotations if entry.get('id') is None or counts[entry['id']] > 1],
        Fault.NUMBER: [entry for entry in objects if entry.get('id') == 0 or isinstance(entry.get('id'), str)],
        Fault.UNKNOWN: [
            entry for entry in annotations if entry['image_id'] not in owner or entry['category_id'] not in used],
        Fault.NO_AREA: [entry for entry in annotations if entry.get('area') is None
                        or not entry['area'] and min(entry['bbox'][2:]) >= 1],
        Fault.IGNORED: [entry for entry in objects if entry.get('ignore') and not entry.get('iscrowd')],
        Fault.NO_CROWD: [entry for entry in objects if entry.get('iscrowd') is None],
        Fault.CROWD: [entry for entry in objects if entry.get('iscrowd')],
        **_find_faulty_boxes(objects, owner),
        **_find_faulty_masks(objects, owner)}


def _find_faulty_boxes(objects: list[Entry], owner: dict[Any, Entry]) -> dict[Fault, list[Entry]]:
    boxes = np.array([entry['bbox'] for entry in objects], float).reshape(-1, 4)
    sides = [[owner[entry['image_id']][side] for side in ('width', 'height')] for entry in objects]
    sizes = np.array(sides, float).reshape(-1, 2)
    start, end = boxes[:, :2], boxes[:, :2] + boxes[:, 2:]
    before, far = (start < -1).any(1), (end > 1.05 * sizes + 1).any(1)
    _refuse_many(objects, (np.abs(boxes) < 2).all(1), 'a bbox of numbers from 0 to 1: it is relative')
    if before.sum() <= MANY * far.sum():
        _refuse_many(objects, far, 'a bbox that ends outside of the image: corners, centres, or of another size')
    found: dict[tuple, list[Any]] = defaultdict(list)  # the masks of each box
    repeated = []
    for entry in sorted(objects, key=lambda entry: not entry.get('segmentation')):
        masks = found[entry['image_id'], entry['category_id'], bool(entry.get('iscrowd')), *entry['bbox']]
        mask = entry.get('segmentation')
        if mask in masks or masks and not mask:  # a box alone repeats the object with a mask
            repeated.append(entry)
        masks.append(mask)
    nowhere = (np.minimum(end, sizes) <= np.maximum(start, 0)).any(1)
    areas = np.array([1 if entry.get('area') is None else entry['area'] for entry in objects])
    return {Fault.REPEATED: repeated} | {fault: list(compress(objects, wrong.tolist())) for fault, wrong in (
        (Fault.NOWHERE, nowhere), (Fault.BEYOND, ~nowhere & (before | (end > sizes + 1).any(1))),
        (Fault.SMALL, ~nowhere & ((boxes[:, 2:] < 1).any(1) | (areas <= 0))))}


def _find_faulty_masks(objects: list[Entry], owner: dict[Any, Entry]) -> dict[Fault, list[Entry]]:
    short, without, masked = [], [], []
    for entry in objects:
        mask = entry.get('segmentation')
        lengths = [*map(len, mask)] if isinstance(mask, list) else []
        if lengths and min(lengths) < 6:
            short.append(entry)
        if isinstance(mask, dict) and mask:
            size = [owner[entry['image_id']][side] for side in ('height', 'width')]
            pixels = sum(mask['counts']) if isinstance(mask['counts'], list) else size[0] * size[1]
            if mask.get('size') != size or pixels != size[0] * size[1]:
                raise ValueError(f'annotation {entry.get("id")!r} has run lengths of {pixels} pixels with the size '
                                 f'{mask.get("size")!r}, but [height, width] of its image are {size}')
        elif max(lengths, default=0) < 6:
            without.append(entry)
            continue
        masked.append(entry)
    masked = masked[::len(masked) // 10_000 + 1]  # a sample suffices
    boxes = np.array([entry['bbox'] for entry in masked], float).reshape(-1, 2, 2).cumsum(1)
    masks = np.array([_corners(entry) for entry in masked]).reshape(-1, 2, 2)
    shared = np.minimum(boxes[:, 1], masks[:, 1]) - np.maximum(boxes[:, 0], masks[:, 0])
    wrong = shared.clip(0).prod(1) < np.diff(masks, axis=1).prod((1, 2)) / 2
    _refuse_many(masked, wrong, 'a segmentation outside of the bbox: of (y, x), relative, of another size, or in rows')
    return {Fault.SHORT: short, Fault.NO_MASK: without}


def _corners(entry: Entry) -> np.ndarray:
    """Return the least and the greatest (x, y) of polygons or run lengths."""
    mask = entry['segmentation']
    if isinstance(mask, list):
        points = np.concatenate(mask).reshape(-1, 2)
        return np.array([points.min(0), points.max(0)])
    from pycocotools import mask as coco_mask  # comes with MMDetection
    lengths = run_lengths(mask, *mask['size'])
    coco_mask.decode(lengths)  # raises ValueError for broken ones
    return coco_mask.toBbox(lengths).reshape(2, 2).cumsum(0)


def run_lengths(mask: Entry | list[list[float]], height: int, width: int) -> Entry:
    """Return COCO's polygons or run lengths as compressed run lengths."""
    from pycocotools import mask as coco_mask
    if isinstance(mask, list):
        polygons = [polygon for polygon in mask if len(polygon) >= 6]  # as MMDetection does
        return coco_mask.merge(coco_mask.frPyObjects(polygons or [[0] * 6], height, width))
    return coco_mask.frPyObjects(mask, height, width) if isinstance(mask['counts'], list) else mask


def _refuse_many(objects: list[Entry], wrong: np.ndarray, suspicion: str) -> None:
    """Raise ``ValueError`` if too many objects are wrong for a mistake in a few of them."""
    if wrong.sum() > max(3, MANY * len(wrong)):
        entry = objects[wrong.argmax()]
        raise ValueError(f'{wrong.sum()} of {len(wrong)} annotations have {suspicion}; e.g. annotation '
                         f'{entry.get("id")!r} with the bbox {entry["bbox"]}. Write bbox as [left, top, width, height] '
                         'and polygons as [[x, y, x, y, ...]], in pixels')
