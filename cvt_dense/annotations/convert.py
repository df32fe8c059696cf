"""Convert detection data from YOLO, Pascal VOC, LabelMe and COCO to COCO and label maps.

Every format is read as COCO's, whose values :mod:`.coco` checks. Ambiguous input raises an error. Each
:class:`.coco.Fault` is repaired and noted, so that a training accepts the result.
"""
import hashlib
import json
import os
import random
import re
import shutil
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml
from PIL import Image
from pycocotools import mask as coco_mask

from ..atomic import write_atomically
from ..errors import listed
from ..images import files_below, images_below, is_image, read_header, shape_as_read
from . import coco
from .coco import Fault
from .names import is_no_class

IGNORED = 255  # of label maps: a pixel that counts neither in the loss nor in the scores
SPLITS = ('train', 'val', 'test')
LABEL_MAPS = ('SegmentationClass', 'SegmentationObject')  # folders of Pascal VOC


@dataclass
class Sample:
    """An image with its objects in COCO's format (but with ``category_id`` from 0), or with its label map.

    Its ``name`` in the result is that of its file, or where two of a split have one, the path below the source.
    """
    path: Path
    split: str = 'train'
    width: int = 0
    height: int = 0
    objects: list[dict[str, Any]] = field(default_factory=list)
    group: str = ''

    def __post_init__(self):
        self.name = self.path.name


@dataclass
class Data:
    """The data to convert; ``notes`` lists the places of everything that is changed or left out."""
    classes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: dict[Fault, list[str]] = field(default_factory=lambda: defaultdict(list))


class Images:
    """The images below a folder; at most one annotation file may describe an image.

    Args:
        src: the folder.
        notes: see :class:`Data`.
        splits: split of each folder or image, by its path or by its name without the suffix; default: as the folders
            are named.

    Attributes:
        content: of a COCO file, which :meth:`add_image` and :meth:`add_object` fill.
    """

    def __init__(self, src: Path, notes: dict[Fault, list[str]], splits: dict[Path | str, str] | None = None):
        self.src, self.notes, self.splits = src, notes, splits or {}
        self.content: dict[str, list[dict[str, Any]]] = dict(images=[], annotations=[])
        images = (path for path in map(Path, images_below(src)) if path.parent.name not in LABEL_MAPS)
        self.files: dict[Path, Path | None] = dict.fromkeys(sorted(images))  # their annotations
        self.named: dict[str, list[Path]] = defaultdict(list)  # by name, with the suffix and without
        for image in self.files:
            for name in (image.name, image.stem):
                self.named[spelling(name)].append(image)

    def take(self, name: str, file: Path, path: str = '') -> Path | None:
        """Return the image of an annotation file, or None if there is none.

        Of several images it is the one nearest to ``path``, and then of the file's split: 'val2017/a.jpg' of
        'annotations/instances_val2017.json'.

        Args:
            name: the end of its path, with or without the suffix.
            file: annotation file.
            path: that the file has, from its folder, which may be wrong; default: ``name``.

        Raises:
            ValueError: several images may be meant, or the image has another annotation file.
        """
        def distance(image: Path) -> tuple[int, bool]:
            return len({*meant.parts} ^ {*image.parts}), split_name(image) != split_name(file / 'file')

        meant = Path(os.path.normpath(file.parent / spelling(path or name)))
        ending = '/'.join(['', *(part for part in spelling(name).split('/') if part not in ('', '.', '..'))])
        images = [image for image in self.named[ending.rpartition('/')[2]] if any(
            f'/{spelling(str(path))}'.endswith(ending) for path in (image, image.with_suffix('')))]
        if not images:
            self.notes[Fault.NO_IMAGE].append(f'{file} {name}')
            return None
        image, *others = sorted(images, key=distance)
        if distance(image) in map(distance, others):
            raise ValueError(f'{name!r} may be any of {list(map(str, images))}')
        if self.files[image] not in (None, file):
            raise ValueError(f'{self.files[image]} describes the image {image} too; keep one of both files')
        self.files[image] = file
        return image

    def rest(self, note: Fault) -> list[Path]:
        """Return the images that no annotation file describes, and note them."""
        images = [image for image, file in self.files.items() if file is None]
        self.notes[note] += map(str, images)
        return images

    def add_image(self, path: Path | None, *size: str | float | None) -> dict[str, Any] | None:
        """Add and return an image that has the size of its annotation file, unless ``splits`` leaves it out."""
        if path is None:
            return None
        named = (self.splits[key] for key in (path.stem, *path.parents) if key in self.splits)
        part = next(named, None) if self.splits else split_name(path.relative_to(self.src))
        if part is None:
            self.notes[Fault.NOT_LISTED].append(str(path))
            return None
        image = image_entry(path, part, *size)
        self.content['images'].append(image)
        return image

    def add_object(self, image: dict[str, Any], label: str, location: str, parts: Sequence[Any],
                   polygons: bool = False, iscrowd: int = 0, rotation: float = 0.) -> None:
        """Add an object.

        Args:
            image: result of :meth:`add_image`.
            label: name of the class.
            location: of the object in its annotation file, for messages.
            parts: points (N, 2) in pixels of each polygon, or those that a box encloses.
            polygons: whether the parts are polygons.
            iscrowd: as in COCO.
            rotation: of a box in degrees.

        Raises:
            Exception: the label is no text, or there is no point.
        """
        parts = [np.reshape(np.array(part, float), (-1, 2)) for part in parts]
        points = np.concatenate(parts)
        entry = dict(id=f'{location} of {image["id"]}', image_id=image['id'], category_id=label.strip(),
                     iscrowd=iscrowd, attributes=dict(rotation=rotation),
                     bbox=[*points.min(0).tolist(), *np.ptp(points, 0).tolist()], area=float(np.ptp(points, 0).prod()))
        if polygons:
            entry.update(segmentation=[part.ravel().tolist() for part in parts],
                         area=sum(cv2.contourArea(part.astype(np.float32)) for part in parts))
        self.content['annotations'].append(entry)

    def finish(self, classes: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
        """Return the content, with the images that have no annotation file.

        Args:
            classes: names; default: the labels in sorted order.

        Raises:
            ValueError: see :func:`.coco.check_values`.
        """
        for path in self.rest(Fault.NO_OBJECTS):
            self.add_image(path)
        names = classes or sorted({entry['category_id'] for entry in self.content['annotations']})
        self.content['categories'] = [dict(id=name, name=name) for name in names]
        coco.check_values(self.content)
        return self.content


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Raise ``ValueError`` with the name of a file whose content cannot be read."""
    try:
        yield
    except Exception as error:  # parsers raise many types for broken files
        raise ValueError(f'{path} cannot be read: {"no " if isinstance(error, KeyError) else ""}{error}') from error


def split_name(path: Path) -> str:
    """Return the split that a word of a folder's name in ``path`` names: 'train', 'val' or 'test'; otherwise 'train'.

    'val2017', 'my_valid' and 'testing' name a split, 'festival' and 'latest' do not.
    """
    word = '(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])'
    return (re.findall(word, '/'.join(path.parts[:-1]).lower()) or ['train'])[-1]


def spelling(name: str) -> str:
    """Return the same text for the paths that Windows, browsers and macOS make of one."""
    return str(PurePosixPath(unicodedata.normalize('NFC', unquote(name.replace('\\', '/')))))


def decode(entry: dict[str, Any], sample: Sample) -> np.ndarray:
    """Return the mask of an object as uint8 (H, W), or its box if it has no mask."""
    x, y, w, h = entry['bbox']
    mask = entry.get('segmentation') or [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return coco_mask.decode(coco.run_lengths(mask, sample.height, sample.width))


def image_entry(path: Path, split: str, *size: str | float | None) -> dict[str, Any]:
    """Return an image in COCO's format; ``size`` is that of the annotation file, where 0 and None are unknown."""
    with naming(path):
        height, width = shape_as_read(read_header(path), None)
    size = tuple(int(side or 0) for side in size)
    if size and all(size) and size != (width, height):
        raise ValueError(f'the annotations of {path} give the size {size}, but upright (EXIF applied) it has '
                         f'{width, height}')
    sample = Sample(path, split, width, height)
    return dict(id=str(path), file_name=str(path), width=width, height=height, sample=sample)


def files_of(src: Path, *suffixes: str) -> list[Path]:
    """Return the files below a folder that are not hidden and have one of the suffixes."""
    return sorted(path for path in map(Path, files_below(src)) if path.suffix.lower() in suffixes)


# -- readers: each yields a file, and the content that it or all files below it have ---------------------

Content = Iterator[tuple[Path, dict[str, list[dict[str, Any]]]]]


def read_yolo(src: Path, data: Data) -> Content:
    """Read ``data.yaml``, and one text file per image, in ``labels`` for images in ``images``.

    ``data.yaml`` has ``names``, and may have a folder or a list of folders as ``train``, ``val`` and ``test``.
    """
    files = [path for path in files_of(src, '.yaml', '.yml') if path.parent == src]
    if len(files) != 1:
        raise ValueError(f'{src} holds {len(files)} .yaml files; allowed is one, whose "names" are the classes.')
    with naming(files[0]):
        content = yaml.safe_load(files[0].read_text(encoding='utf-8-sig'))
        names = content['names']
        classes = [names[number] for number in range(len(names))]
        if isinstance(names, str) or {*map(type, classes)} != {str} or len({*classes}) != content.get('nc', len(names)):
            raise ValueError(f'names={names!r}: allowed are nc different texts, as a list or with the numbers from 0, '
                             'such as [car, "7"]')
        if 'kpt_shape' in content:
            raise ValueError('keypoints (kpt_shape) are not read; write boxes or polygons')
        images = Images(src, data.notes, _yolo_splits(src, content))
    for file in files_of(src, '.txt'):
        before, inside, after = f'/{file.relative_to(src).with_suffix("")}'.rpartition('/labels/')
        with naming(file):
            image = images.add_image(images.take(f'{src}{before}/images/{after}' if inside else str(
                file.with_suffix('')), file))
            if image is not None:
                _read_yolo_lines(file, images, image, classes)
    yield src, images.finish(classes)


def _yolo_splits(src: Path, content: dict[str, Any]) -> dict[Path | str, str]:
    """Return the split of each folder that ``data.yaml`` names."""
    splits: dict[Path | str, str] = {}
    for part, entry in ((part, str(entry)) for part in SPLITS for entry in np.atleast_1d(content.get(part) or [])):
        # As for Ultralytics, folders may be written as from a folder beside the file's.
        paths = [Path(os.path.normpath(src / os.path.relpath(src / path, src))) for path in (
            f'{content.get("path") or "."}/{entry}', entry, re.sub(r'^(\.\./)+', '', entry))]
        folder = next((path for path in paths if path.is_dir() and path.is_relative_to(src)), None)
        if part != 'test' and (not folder or folder in splits):  # Roboflow always names a folder for the test
            raise ValueError(f'{part}: {entry!r} is no folder in {src}, or that of another split; correct it, or '
                             'remove it and use --split')
        if folder:
            splits.setdefault(folder, part)
    return splits


def _read_yolo_lines(file: Path, images: Images, image: dict[str, Any], classes: list[str]) -> None:
    lines, size = file.read_text(encoding='utf-8-sig').split('\n'), (image['width'], image['height'])
    for number, line in ((number, line) for number, line in enumerate(lines, 1) if line.strip()):
        with naming(f'line {number}, {line!r},'):
            label, *numbers = map(float, line.split())
            polygon = len(numbers) > 5  # a box may have a confidence
            if (label not in range(len(classes)) or len(numbers) < 4 or polygon and len(numbers) % 2
                    or not polygon and min(numbers[2:4]) < 0 or max(numbers) >= 2):  # pixels
                raise ValueError(f'allowed are one of {len(classes)} classes and 4, 5, 6, 8, ... numbers from 0 to 1')
            center, half = np.array(numbers[:2]), np.array(numbers[2:4]) / 2
            points = np.reshape(numbers if polygon else [center - half, center + half], (-1, 2)) * size
            images.add_object(image, classes[int(label)], f'line {number}', [points], polygon)


def read_voc(src: Path, data: Data) -> Content:
    """Read an XML file for each image, and ``ImageSets/Main/{train,val,test,trainval}.txt`` if they exist."""
    splits: dict[Path | str, str] = {}
    for part in (*SPLITS, 'trainval'):
        for path in src.rglob(f'ImageSets/Main/{part}.txt'):
            for line in filter(str.strip, path.read_text('utf-8-sig').splitlines()):
                name = PureWindowsPath(line.strip(' \t"')).name  # CVAT quotes names with spaces
                name = os.path.splitext(name)[0] if is_image(name) else name
                if part not in (splits.setdefault(name, 'train' if part == 'trainval' else part), 'trainval'):
                    raise ValueError(f'{path} has {name!r}, which is in the list {splits[name]}.txt too')
    images = Images(src, data.notes, splits)
    for file in files_of(src, '.xml'):
        with naming(file):
            root = ElementTree.parse(file).getroot()
            image = images.add_image(images.take(file.stem, file), root.findtext('size/width'),
                                     root.findtext('size/height'))
            for number, node in enumerate(root.findall('object') if image else (), 1):
                if not (name := node.findtext('name')):
                    raise ValueError(f'object {number} has no <name>')
                corners = [float(node.findtext(f'bndbox/{key}', 'nan')) for key in ('xmin', 'ymin', 'xmax', 'ymax')]
                box = np.array(corners) - [1, 1, 0, 0]  # pixels count from 1, and the last is inside
                polygons = [np.array([float(value.text) for value in polygon]) - 1
                            for polygon in node.findall('polygon')]
                rotation = node.findtext("attributes/attribute[name='rotation']/value")  # of CVAT
                images.add_object(image, name, f'object {number}', polygons or [box], bool(polygons),
                                  int(node.findtext('difficult') or 0), float(rotation or 0))
    yield src, images.finish()


def read_labelme(src: Path, data: Data) -> Content:
    """Read JSON files, each of which names its image as ``imagePath``; the shapes of one group are one object."""
    images = Images(src, data.notes)
    for file in files_of(src, '.json'):
        with naming(file):
            content = json.loads(file.read_text(encoding='utf-8-sig'))
            image = images.add_image(images.take(PureWindowsPath(path := content['imagePath']).name, file, path),
                                     content.get('imageWidth'), content.get('imageHeight'))
            groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
            for number, shape in enumerate(content['shapes'] if image else (), 1):
                shape = {'shape_type': 'polygon', **shape}  # as LabelMe reads its older files
                points, group = shape['points'], shape.get('group_id')
                if shape['shape_type'] == 'rectangle' and len(points) == 2:  # otherwise all corners
                    (x, y), (right, bottom) = points
                    points = [[x, y], [right, y], [right, bottom], [x, bottom]]
                elif shape['shape_type'] not in ('polygon', 'rectangle'):
                    data.notes[Fault.SHAPE].append(f'{shape["shape_type"]} of {file}')
                    continue
                key = shape['label'], f'shape {number}' if group is None else f'group {group} of {shape["label"]!r}'
                groups[key].append(dict(shape, points=points))
            for (label, location), shapes in groups.items():
                images.add_object(image, label, location, [shape['points'] for shape in shapes],
                                  any(shape['shape_type'] == 'polygon' for shape in shapes))
    yield src, images.finish()


def read_coco(src: Path, data: Data) -> Content:
    """Read JSON files in COCO's format, whose images may be in any folder."""
    available = Images(src, data.notes)
    for file in files_of(src, '.json'):
        with naming(file):
            content = json.loads(file.read_bytes())
            if not isinstance(content, dict) or not {'images', 'annotations', 'categories'} <= content.keys():
                data.notes[Fault.OTHER_JSON].append(str(file))
                continue
            coco.check_values(content)
            for image in content['images']:
                if path := available.take(image['file_name'], file):
                    part = split_name(file.relative_to(src) / 'file')
                    image['sample'] = image_entry(path, part, image['width'], image['height'])['sample']
        yield file, content
    available.rest(Fault.NOT_NAMED)


READERS = dict(yolo=read_yolo, voc=read_voc, labelme=read_labelme, coco=read_coco)


def read(src: Path, source: str, masks: bool = False) -> Data:
    """Read a data set and repair it.

    Args:
        src: folder of the data.
        source: format, one of ``READERS``.
        masks: whether objects without a mask become crowds, whose mask is their box.

    Raises:
        FileNotFoundError: there is no annotated image in the folder.
        ValueError: a file cannot be read, or has two meanings.
    """
    data = Data()
    for file, content in READERS[source](Path(os.path.normpath(src)), data):
        with naming(file):
            found = coco.find_faults(content)
        names = {category['id']: category['name'] for category in content['categories']}
        data.classes += [name for name in dict.fromkeys(names.values())
                         if name not in data.classes and not is_no_class(name)]
        samples = {image['id']: image['sample'] for image in content['images'] if 'sample' in image}
        data.samples += samples.values()
        for fault, entries in found.items():
            # Texts as ids are those of the other readers; all ids are numbered again.
            if fault.repair and (source == 'coco' or fault not in (Fault.NUMBER, Fault.ORDER)) and (
                    masks or fault is not Fault.NO_MASK):
                data.notes[fault] += [f'{entry.get("id")} of {file}' for entry in entries]
        gone, cut = ({id(entry) for fault in faults for entry in found[fault]} for faults in (
            (Fault.UNKNOWN, Fault.NOWHERE, Fault.REPEATED), (Fault.BEYOND, )))
        for entry in content['annotations']:
            if id(entry) not in gone and (sample := samples.get(entry['image_id'])):
                repaired = _repair(entry, sample if id(entry) in cut else None, masks)
                sample.objects.append(dict(repaired, category_id=data.classes.index(names[entry['category_id']])))
    if not any(sample.objects for sample in data.samples):
        raise FileNotFoundError('; '.join([f'{src} holds no annotated image in the format {source!r}', *notes(data)]))
    data.samples.sort(key=lambda sample: str(sample.path))
    numbers = Counter((sample.split, sample.name) for sample in data.samples)
    for sample in (sample for sample in data.samples if numbers[sample.split, sample.name] > 1):
        sample.name = os.path.relpath(sample.path, src)
    return data


def _repair(entry: dict[str, Any], sample: Sample | None, masks: bool) -> dict[str, Any]:
    """Return an object as a training accepts it, without its ids.

    Args:
        entry: see :func:`.coco.find_faults`.
        sample: the image whose borders the box is cut at; None: it is not cut.
        masks: see :func:`read`.
    """
    x, y, w, h = entry['bbox']
    crowd, area, mask = entry.get('iscrowd') or entry.get('ignore'), entry.get('area'), entry.get('segmentation')
    if sample is not None:
        right, bottom = min(x + w, sample.width), min(y + h, sample.height)
        x, y = max(x, 0), max(y, 0)
        w, h = right - x, bottom - y
        area = min(w * h, area or w * h)
    if isinstance(mask, list):
        mask = [polygon for polygon in mask if len(polygon) >= 6]
    if masks and not mask:
        crowd, mask = 1, [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return dict(bbox=[x, y, w, h], area=area or w * h, iscrowd=int(bool(crowd)),
                **(dict(segmentation=mask) if mask else {}))


# -- splits ----------------------------------------------------------------------------------------


def split(data: Data, fractions: Sequence[float], seed: int = 0, group: str | None = None) -> None:
    """Divide the samples so that each part has its fraction of the images of every class, by the rarest in an image.

    Equal files are in one part, since a network would be tested on what it has seen.

    Args:
        data: changed in place.
        fractions: the fractions of 'train', 'val' and 'test', with the sum 1.
        seed: seed of the random numbers.
        group: pattern; samples whose paths, from the common folder of all, match it with the same text, or first group
            of it, stay together.

    Raises:
        ValueError: a part has no image, or ``group`` matches none.
    """
    common = os.path.commonpath([sample.path.parent for sample in data.samples])
    joined: dict[str | bytes, str | bytes] = {}  # the next member of its group, for each name and content

    def last(member: str | bytes) -> str | bytes:
        while joined.setdefault(member, member) != member:
            member = joined[member]
        return member

    for sample in data.samples:
        match = group and re.search(group, os.path.relpath(sample.path, common))
        same = match and match[min(match.re.groups, 1)]
        sample.group = str(sample.path) if same is None else same
        joined[last(hashlib.sha256(sample.path.read_bytes()).digest())] = last(sample.group)
    if group and all(sample.group == str(sample.path) for sample in data.samples):
        raise ValueError(f'--group {group!r} matches no path of an image below {common}.')
    named: dict[str | bytes, list[Sample]] = defaultdict(list)
    for sample in data.samples:
        named[last(sample.group)].append(sample)
    groups = [named[name] for name in sorted(named)]
    random.Random(seed).shuffle(groups)
    total = Counter(entry['category_id'] for sample in data.samples for entry in sample.objects)

    def rarest(members: list[Sample]) -> tuple[int, int]:
        return min((total[entry['category_id']], entry['category_id']) for sample in members
                   for entry in sample.objects or [dict(category_id=-1)])

    sizes = [0] * len(fractions)
    for members in sorted(groups, key=rarest):
        lacking = [fraction * (sum(sizes) + len(members)) - size for fraction, size in zip(fractions, sizes)]
        part = lacking.index(max(lacking))
        sizes[part] += len(members)
        for sample in members:
            sample.split = SPLITS[part]
    if 0 in sizes:
        raise ValueError(f'{SPLITS[sizes.index(0)]} gets no image of {len(groups)} groups with {list(fractions)}.')


# -- writers ---------------------------------------------------------------------------------------


def check_target(data: Data, target: str) -> None:
    """Check that data can be written in the format ``target``, 'coco' or 'masks'.

    Raises:
        ValueError: two images of a split would get the same name, or there are too many classes for label maps.
    """
    names = Counter((sample.split, os.path.splitext(sample.name)[0] if target == 'masks' else sample.name)
                    for sample in data.samples)
    twice = [name for name, number in names.items() if number > 1]
    if twice:
        raise ValueError(f'several images would get one name in one split, {listed(twice)}: rename all but one.')
    if target == 'masks' and len(data.classes) >= IGNORED:
        raise ValueError(f'Label maps hold {IGNORED} classes with the background, and there are {len(data.classes)}.')


def write(data: Data, dst: Path, target: str) -> None:
    """Write images and annotations.

    Args:
        data: samples and classes; notes are added.
        dst: folder, without files.
        target: 'coco' for ``annotations/<split>.json``, or 'masks' for ``labels/<split>/*.png`` and ``classes.txt``.

    Raises:
        ValueError: see :func:`check_target`.
    """
    check_target(data, target)
    for sample in data.samples:
        write_sample(sample, dst, _draw(data, sample) if target == 'masks' else None)
    write_annotations(data, dst, target)


def write_sample(sample: Sample, dst: Path, label_map: np.ndarray | None = None) -> None:
    """Write an image, and its label map if there is one; see :func:`write`."""
    file = dst / ('' if label_map is None else 'images') / sample.split / sample.name
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sample.path, file)
    if label_map is not None:
        file = (dst / 'labels' / sample.split / sample.name).with_suffix('.png')
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(label_map.astype(np.uint8)).save(file)


def write_annotations(data: Data, dst: Path, target: str) -> None:
    """Write what all samples have in common: COCO's files, or the names of the classes; see :func:`write`."""
    if target == 'masks':
        (dst / 'classes.txt').write_text(''.join(f'{name}\n' for name in data.classes), encoding='utf-8')
        return
    categories = [dict(id=i, name=name) for i, name in enumerate(data.classes, 1)]
    for part in dict.fromkeys(sample.split for sample in data.samples):
        content = dict(images=[], annotations=[], categories=categories)
        for i, sample in enumerate((sample for sample in data.samples if sample.split == part), 1):
            content['images'].append(dict(id=i, file_name=sample.name, width=sample.width, height=sample.height))
            content['annotations'] += [dict(entry, id=number, image_id=i, category_id=entry['category_id'] + 1)
                                       for number, entry in enumerate(sample.objects, len(content['annotations']) + 1)]
        write_atomically(dst / 'annotations' / f'{part}.json', json.dumps(content))


def _draw(data: Data, sample: Sample) -> np.ndarray:
    """Return the objects of a sample as a label map (H, W), small ones in front of the class 'background'."""
    if 'background' not in data.classes:
        data.classes.append('background')
    label_map = np.full((sample.height, sample.width), data.classes.index('background'))
    for entry in sorted(sample.objects, key=lambda entry: -entry['area']):
        if not entry.get('segmentation'):
            data.notes[Fault.BOX_ALONE].append(str(sample.path))
        label_map[decode(entry, sample) > 0] = entry['category_id']
    return label_map


def notes(data: Data) -> list[str]:
    """Return what was changed or left out, with the number of places and the first ones."""
    return [f'{fault.text}: {fault.repair} ({len(places)}: {listed(places, 3)})'
            for fault, places in data.notes.items() if places]
