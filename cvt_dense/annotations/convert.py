"""Convert detection data from YOLO, Pascal VOC, LabelMe and COCO to COCO, YOLO, LabelMe and label maps.

Every format is read as COCO's, which :class:`.coco.Annotations` tests. What has two meanings is an error.
"""
import json
import os
import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any
from xml.etree import ElementTree

import numpy as np
import supervision as sv
import yaml
from PIL import Image
from pycocotools import mask as coco_mask
from supervision.dataset.formats import labelme, pascal_voc, yolo

from ..atomic import write_atomically
from ..images import files_below, images_below, upright_size
from . import coco

IGNORED = 255  # of label maps: a pixel that counts neither in the loss nor in the scores
SPLITS = ('train', 'val', 'test')


@dataclass
class Sample:
    """An image with its objects, as COCO has them but for ``category_id``, which counts from 0."""
    path: Path
    split: str
    width: int
    height: int
    objects: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Data:
    """The data to convert; ``notes`` lists the places of everything that could not be converted."""
    classes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    background: bool = True  # whether pixels without an object are background, not unlabelled
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add_detections(self, sample: Sample, detections: sv.Detections) -> None:
        """Add predicted objects, without those that lie outside of the image."""
        boxes = detections.xyxy.clip(0, [sample.width, sample.height] * 2)
        for i in np.flatnonzero((boxes[:, 2:] > boxes[:, :2]).all(1)):
            sample.objects.append(dict(as_coco(detections[i]), category_id=int(detections.class_id[i]), iscrowd=0))

    def add_label_map(self, sample: Sample, pixels: np.ndarray) -> None:
        """Add one object for each class of a label map (H, W), without the pixels that are ``IGNORED``."""
        for value in np.unique(pixels[pixels != IGNORED]).tolist():
            mask, label = (pixels == value)[None], np.array([value])
            self.add_detections(sample, sv.Detections(sv.mask_to_xyxy(mask, 'exclusive'), mask, class_id=label))


class Images:
    """The images below a folder, each of which one annotation file may describe; see :attr:`Data.notes`."""

    def __init__(self, src: Path, notes: dict[str, list[str]]):
        self.src, self.notes = src, notes
        self.files: dict[Path, Path | None] = dict.fromkeys(sorted(map(Path, images_below(src))))  # their annotations
        self.named: dict[str, list[Path]] = defaultdict(list)  # by name, with the suffix and without
        for image in self.files:
            for name in (image.name, image.stem):
                self.named[coco.spelling(name)].append(image)

    def take(self, name: str, file: Path) -> Path | None:
        """Return the image of an annotation file, or None if there is none.

        Of several it is the one whose path has most words in common with the path of the annotation file, such as
        'val2017' of 'annotations/instances_val2017.json'.

        Args:
            name: the end of its path, with or without the suffix.
            file: annotation file.

        Raises:
            ValueError: several images may be meant, or the image has another annotation file.
        """
        ending = '/'.join(['', *(part for part in coco.spelling(name).split('/') if part not in ('', '.', '..'))])
        found = [image for image in self.named[ending.rpartition('/')[2]] if any(
            f'/{coco.spelling(str(path))}'.endswith(ending) for path in (image, image.with_suffix('')))]
        words = [{*re.findall('[a-z0-9]+', str(path.relative_to(self.src)).lower())} for path in (file, *found)]
        common = [len(words[0] & others) for others in words[1:]]
        if not found:
            self.notes['annotations without an image were left out'].append(f'{file} {name}')
            return None
        image = found[common.index(max(common))]
        if common.count(max(common)) > 1 or self.files[image] not in (None, file):
            raise ValueError(f'it may mean one of {list(map(str, found))}, or {self.files[image]} describes one too')
        self.files[image] = file
        return image

    def rest(self, note: str) -> list[Path]:
        """Return the images that no annotation file describes, and note them."""
        found = [image for image, file in self.files.items() if file is None]
        self.notes[note] += map(str, found)
        return found


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise ``ValueError`` with the name of a file whose content cannot be read."""
    try:
        yield
    except Exception as error:  # parsers raise many types for broken files
        raise ValueError(f'{path} cannot be read: {"no " * isinstance(error, KeyError)}{error}') from error


def split_name(path: Path) -> str:
    """Return the split that a word of a folder's name in ``path`` names: 'train', 'val' or 'test'; otherwise 'train'.

    'val2017', 'my_valid' and 'testing' name a split, 'festival' and 'latest' do not.
    """
    word = '(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])'
    return (re.findall(word, '/'.join(path.parts[:-1]).lower()) or ['train'])[-1]


def encode(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask (H, W) as COCO's compressed run lengths."""
    found = coco_mask.encode(np.asfortranarray(mask, np.uint8))
    return dict(size=found['size'], counts=found['counts'].decode())


def as_coco(detection: sv.Detections) -> dict[str, Any]:
    """Return box and mask of a detection as COCO has them."""
    box, mask = sv.xyxy_to_xywh(detection.xyxy)[0].tolist(), detection.mask
    return dict(bbox=box, area=box[2] * box[3]) if mask is None or not mask.any() else dict(
        bbox=box, area=float(mask.sum()), segmentation=encode(mask[0]))


def rle(one: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """Return an object's segmentation (polygons or run lengths), or else its box, as compressed run lengths."""
    x, y, w, h = one['bbox']
    segmentation = one.get('segmentation') or [[x, y, x + w, y, x + w, y + h, x, y + h]]
    return coco.run_lengths(segmentation, sample.height, sample.width)


def open_image(path: Path, split: str, *given: str | float | None) -> dict[str, Any]:
    """Return an image as COCO has it; with the size that an annotation file gives, of which 0 and None are unknown."""
    with naming(path), Image.open(path) as image:
        width, height = upright_size(image)
    given = tuple(int(side or 0) for side in given)
    if given and all(given) and given != (width, height):
        raise ValueError(f'it gives {path.name} the size {given}, but upright (EXIF applied) it has {width, height}')
    return dict(id=str(path), file_name=str(path), path=path, split=split, width=width, height=height)


def files_of(src: Path, *suffixes: str) -> list[Path]:
    """Return the files below a folder that are not hidden and have one of the suffixes."""
    return sorted(path for path in map(Path, files_below(src)) if path.suffix.lower() in suffixes)


# -- readers: each yields the content of an annotation file, or of all -------------------------------

Objects = Callable[[tuple[int, int]], Iterator[tuple[str, str, sv.Detections, int]]]  # label, place, object, iscrowd


def _read_each(src: Path, data: Data, suffix: str, parse: Callable[[Path], tuple[list[str], tuple, Objects]],
               splits: dict[Path | str, str] | None = None, classes: Sequence[str] = ()) -> Iterator[tuple]:
    """Read an annotation file for each image.

    Args:
        src: folder.
        data: gets notes.
        suffix: of the annotation files.
        parse: returns the possible names of the image, its width and height if they are given, and a function that
            yields the objects in an image of a size.
        splits: split of each image by its path or its name without the suffix; None: as the folders are named.
        classes: names; default: the labels in sorted order.
    """
    available, images, objects = Images(src, data.notes), [], []

    def add(image: Path, given: tuple, parsed: Objects) -> None:
        part = splits.get(image, splits.get(image.stem)) if splits else split_name(image.relative_to(src))
        if part is None:
            data.notes['images in no list of data.yaml or ImageSets were left out'].append(str(image))
            return
        images.append(open_image(image, part, *given))
        found = [dict(as_coco(shape), id=f'{place} of {image}', image_id=images[-1]['id'], category_id=label,
                      iscrowd=crowd)
                 for label, place, shape, crowd in parsed((images[-1]['width'], images[-1]['height']))]
        objects.extend(sorted(found, key=lambda one: 'segmentation' not in one))

    for file in files_of(src, suffix):
        with naming(file):
            names, *parsed = parse(file)
            if image := available.take(next((name for name in names if name in available.named), names[-1]), file):
                add(image, *parsed)
    for image in available.rest('images without annotations have no objects'):
        add(image, (), lambda size: iter(()))
    yield src, coco.Annotations(dict(images=images, annotations=objects, categories=[
        dict(id=name, name=name) for name in classes or sorted({one['category_id'] for one in objects})]))


def read_yolo(src: Path, data: Data) -> Iterator[tuple[Path, coco.Annotations]]:
    """Read ``data.yaml``, and one text file per image, in ``labels`` for images in ``images``.

    ``data.yaml`` has ``names``, and may have folders or lists of images as ``train``, ``val`` and ``test``.
    """
    files = [path for path in files_of(src, '.yaml', '.yml') if path.parent == src]
    if len(files) != 1:
        raise ValueError(f'{src} holds {len(files)} .yaml files; allowed is one, whose "names" are the classes.')
    with naming(files[0]):
        content = yaml.safe_load(files[0].read_text(encoding='utf-8-sig'))
        names = content['names']
        names = dict(enumerate(names)) if isinstance(names, list) else {int(key): names[key] for key in names}
        classes = [names.get(number) for number in range(max(len(names), content.get('nc', 0)))]
        if {*map(type, classes)} != {str} or content.get('nc', len(classes)) != len(classes):
            raise ValueError(f'names={names!r}, nc={content.get("nc")}: allowed are nc texts, as a list or with the '
                             'numbers from 0, such as [car, "7"]')
        splits = _yolo_splits(src, content)
        keypoints = int(np.prod(content.get('kpt_shape', 0)))
    data.notes['keypoints were left out'] += [str(files[0])] * bool(keypoints)
    return _read_each(src, data, '.txt', lambda path: _parse_yolo(src, classes, keypoints, path), splits, classes)


def _yolo_splits(src: Path, content: dict[str, Any]) -> dict[Path | str, str]:
    """Return the split of each image that ``data.yaml`` names."""
    splits: dict[Path | str, str] = {}
    for part in SPLITS:
        for entry in map(str, np.atleast_1d(content.get(part) or [])):
            # As for Ultralytics, folders may be written as from a folder beside the file's.
            places = [Path(os.path.normpath(src / path)) for path in (
                f'{content.get("path") or "."}/{entry}', entry, re.sub(r'^(\.\./)+', '', entry))]
            place = next((path for path in places if path.exists() and path.is_relative_to(src)), places[-1])
            lines = place.read_text(encoding='utf-8-sig').splitlines() if place.is_file() else []
            found = [place.parent / line.strip() for line in lines if line.strip()] or list(images_below(place))
            if not found and part != 'test':  # which Roboflow always names
                raise ValueError(f'{part}: {entry!r} holds no image in {src}; correct it, or remove it')
            for image in (Path(os.path.normpath(path)) for path in found):
                if splits.setdefault(image, part) != part or not (image.is_file() and image.is_relative_to(src)):
                    raise ValueError(f'{part}: {image} is not in {src}, or is in another split too')
    return splits


def _parse_yolo(src: Path, classes: list[str], keypoints: int, path: Path) -> tuple[list[str], tuple, Objects]:
    before, inside, after = f'/{path.relative_to(src).with_suffix("")}'.rpartition('/labels/')
    allowed = (4, 4 + keypoints) if keypoints else (4, 5, *range(6, 10**5, 2))  # 5: with a confidence

    def objects(size: tuple[int, int]) -> Iterator[tuple[str, str, sv.Detections, int]]:
        lines = enumerate(path.read_text(encoding='utf-8-sig').splitlines(), 1)
        for number, line in ((number, line) for number, line in lines if line.strip()):
            with naming(f'line {number}, {line!r},'):
                label, *numbers = map(float, line.split())
                if label not in range(len(classes)) or len(numbers) not in allowed or not coco.finite(numbers):
                    raise ValueError(f'allowed are one of {len(classes)} classes and {allowed[:4]} finite numbers')
                mask = not keypoints and len(numbers) > 5
                text = ' '.join(map(repr, [int(label), *numbers[:None if mask else 4]]))
                yield classes[int(label)], f'line {number}', yolo.yolo_annotations_to_detections([text], size, mask), 0

    return [f'{src}{before}/images/{after}' if inside else str(path.with_suffix(''))], (), objects


def read_voc(src: Path, data: Data) -> Iterator[tuple[Path, coco.Annotations]]:
    """Read an XML file for each image, and ``ImageSets/Main/{train,val,test,trainval}.txt`` if they exist."""
    splits: dict[Path | str, str] = {}
    lists = [path for path in files_of(src, '.txt') if path.parts[-3:-1] == ('ImageSets', 'Main')]
    for part in (*SPLITS, 'trainval'):
        for name in (line.strip() for path in lists if path.stem == part for line in path.read_text().splitlines()):
            if splits.setdefault(name, part.removesuffix('val') or part) != part and part != 'trainval':
                raise ValueError(f'ImageSets/Main has {name!r} in {splits[name]} and in {part}')
    return _read_each(src, data, '.xml', _parse_voc, splits)


def _parse_voc(path: Path) -> tuple[list[str], tuple, Objects]:
    root = ElementTree.parse(path).getroot()

    def objects(size: tuple[int, int]) -> Iterator[tuple[str, str, sv.Detections, int]]:
        found, names = pascal_voc.detections_from_xml_obj(root, [], size)
        for i, one in enumerate(root.findall('object')):
            yield names[found.class_id[i]], f'object {i + 1}', found[i], int(one.findtext('difficult') or 0)

    name = coco.spelling(root.findtext('filename') or '').split('/')[-1]
    return [name, path.stem], (root.findtext('size/width'), root.findtext('size/height')), objects


def read_labelme(src: Path, data: Data) -> Iterator[tuple[Path, coco.Annotations]]:
    """Read JSON files, each of which names its image as ``imagePath``; the shapes of one group are one object."""
    return _read_each(src, data, '.json', lambda path: _parse_labelme(data, path))


def _parse_labelme(data: Data, path: Path) -> tuple[list[str], tuple, Objects]:
    content = json.loads(path.read_text(encoding='utf-8-sig'))
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for number, shape in enumerate(content['shapes'], 1):
        if not isinstance(shape['label'], str) or not all(map(coco.finite, shape['points'])):
            raise ValueError(f'shape {number} has no text as its label, or no finite points')
        if shape['shape_type'] in labelme.SUPPORTED_SHAPE_TYPES:
            group = shape.get('group_id')
            groups[shape['label'], f'shape {number}' if group is None else f'group {group}'].append(shape)
        else:
            data.notes[f'shapes of type {shape["shape_type"]!r} were left out'].append(str(path))

    def objects(size: tuple[int, int]) -> Iterator[tuple[str, str, sv.Detections, int]]:
        for (label, place), shapes in groups.items():
            mask = any(one['shape_type'] == 'polygon' for one in shapes)
            yield label, place, labelme.labelme_shapes_to_detections(shapes, {label: 0}, size, mask), 0

    name = PureWindowsPath(content['imagePath']).name  # takes slashes too
    return [name], (content.get('imageWidth'), content.get('imageHeight')), objects


def read_coco(src: Path, data: Data) -> Iterator[tuple[Path, coco.Annotations]]:
    """Read JSON files in COCO's format, whose images may be in any folder."""
    available = Images(src, data.notes)
    for file in files_of(src, '.json'):
        with naming(file):
            content = json.loads(file.read_bytes())
            if not isinstance(content, dict) or not {'images', 'annotations', 'categories'} <= content.keys():
                data.notes['JSON files without images, annotations and categories were left out'].append(str(file))
                continue
            found = coco.Annotations(content)
            found.use_classes([one['name'] for one in content['categories']])
            for image in content['images']:
                if path := available.take(image['file_name'], file):
                    part = split_name(file.relative_to(src) / 'file')
                    image |= open_image(path, part, image['width'], image['height']) | dict(id=image['id'])
        data.notes['keypoints were left out'] += [str(file) for one in content['annotations'] if one.get('keypoints')]
        yield file, found
    available.rest('images that no annotation file names were left out')


READERS = dict(yolo=read_yolo, voc=read_voc, labelme=read_labelme, coco=read_coco)


def read(src: Path, source: str) -> Data:
    """Read a data set.

    Args:
        src: folder of the data.
        source: format, one of ``READERS``.

    Raises:
        FileNotFoundError: there is no annotated image in the folder.
        ValueError: a file cannot be read, or has two meanings.
    """
    data = Data()
    for file, found in READERS[source](Path(os.path.normpath(src)), data):
        names = {one['id']: one['name'] for one in found.content['categories']}
        data.classes += [name for name in names.values() if name not in data.classes]
        samples = {one['id']: Sample(one['path'], one['split'], one['width'], one['height'])
                   for one in found.content['images'] if 'path' in one}
        data.samples += samples.values()
        for reason, ids in found.counts.items():
            data.notes[f'annotations {reason}'] += [f'{name} of {file}' for name in ids]
        for one in found.content['annotations']:
            if one['image_id'] in samples:
                samples[one['image_id']].objects.append(dict(
                    {key: one[key] for key in ('bbox', 'area', 'iscrowd', 'segmentation') if one.get(key) is not None},
                    category_id=data.classes.index(names[one['category_id']])))
    if not any(sample.objects for sample in data.samples):
        raise FileNotFoundError(f'{src} holds no annotated image in the format {source!r}.')
    data.samples.sort(key=lambda sample: str(sample.path))
    return data


# -- splits ----------------------------------------------------------------------------------------


def split(data: Data, fractions: Sequence[float], seed: int = 0, group: str | None = None) -> None:
    """Divide the samples so that each part has the same fraction of every class (Sechidis et al. 2011).

    Args:
        data: changed in place.
        fractions: the fractions of 'train', 'val' and 'test', with the sum 1.
        seed: seed of the random numbers.
        group: pattern; samples whose names match it with the same text, or first group of it, stay together.

    Raises:
        ValueError: wrong fractions, or a part without an image.
    """
    if not 2 <= len(fractions) <= 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f'fractions {list(fractions)}: allowed are two or three positive numbers with the sum 1.')
    named: dict[str, list[Sample]] = defaultdict(list)
    for sample in data.samples:
        match = group and re.search(group, sample.path.name)
        named[match[min(match.re.groups, 1)] if match else str(sample.path)].append(sample)
    groups = [named[name] for name in sorted(named)]
    random.Random(seed).shuffle(groups)
    counts = [Counter(one['category_id'] for sample in members for one in sample.objects) for members in groups]
    total = sum(counts, Counter())
    wanted = [Counter({label: number * fraction for label, number in total.items()}) for fraction in fractions]
    room = [fraction * len(data.samples) for fraction in fractions]
    rarest = [min(found, key=lambda label: (total[label], label), default=-1) for found in counts]
    for i in sorted(range(len(groups)), key=lambda i: (total[rarest[i]] or 1e18, rarest[i], -counts[i][rarest[i]])):
        part = max(range(len(fractions)), key=lambda part: (wanted[part][rarest[i]], room[part]))
        wanted[part].subtract(counts[i])
        room[part] -= len(groups[i])
        for sample in groups[i]:
            sample.split = SPLITS[part]
    for name, fraction in zip(SPLITS, fractions):
        parts = [sample.objects for sample in data.samples if sample.split == name]
        if not parts:
            raise ValueError(f'{name} gets no image: {fraction:g} of {len(groups)} groups of images is too little.')
        for label in sorted(total.keys() - {one['category_id'] for objects in parts for one in objects}):
            data.notes[f'{name} has no object of a class'].append(data.classes[label])


# -- writers ---------------------------------------------------------------------------------------


def check(data: Data, target: str) -> None:
    """Check that data can be written in the format ``target``, one of ``WRITERS``.

    Raises:
        ValueError: two images of a split would get the same name, or label maps cannot hold as many classes.
    """
    if target == 'masks' and len(data.classes) >= IGNORED:
        raise ValueError(f'{len(data.classes)} classes and the background are more than {IGNORED}, of label maps.')
    names = Counter((sample.split, sample.path.stem) for sample in data.samples)
    twice = [str(sample.path) for sample in data.samples if names[sample.split, sample.path.stem] > 1]
    if twice:
        raise ValueError(f'{twice[:4]} would get one name in one split: rename one.')


def write(data: Data, dst: Path, target: str) -> None:
    """Write images and annotations.

    Args:
        data: samples and classes; notes are added.
        dst: folder.
        target: 'coco' for ``annotations/<split>.json``, 'masks' for ``labels/<split>/*.png`` and ``classes.txt``,
            'yolo' for ``labels/<split>/*.txt`` and ``data.yaml``, or 'labelme' for a JSON file beside each image.

    Raises:
        ValueError: see :func:`check`.
    """
    check(data, target)
    for sample in data.samples:
        folder = dst / 'images' / sample.split if target in ('masks', 'yolo') else dst / sample.split
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sample.path, folder / sample.path.name)
    for sample in data.samples if target in ('yolo', 'labelme') else ():
        data.notes['crowds became ordinary objects'] += [str(sample.path) for one in sample.objects if one['iscrowd']]
    WRITERS[target](data, dst)


def _write_coco(data: Data, dst: Path) -> None:
    for part in dict.fromkeys(sample.split for sample in data.samples):
        content = dict(images=[], annotations=[], categories=[
            dict(id=i, name=name) for i, name in enumerate(data.classes, 1)])
        for i, sample in enumerate((sample for sample in data.samples if sample.split == part), 1):
            content['images'].append(dict(id=i, file_name=sample.path.name, width=sample.width, height=sample.height))
            for one in sample.objects:
                content['annotations'].append(dict(one, id=len(content['annotations']) + 1, image_id=i,
                                                   category_id=one['category_id'] + 1))
        write_atomically(dst / 'annotations' / f'{part}.json', json.dumps(content))


def _write_masks(data: Data, dst: Path) -> None:
    if data.background and 'background' not in data.classes:
        data.classes.append('background')
    fill = data.classes.index('background') if data.background else IGNORED
    if len({sample.path.suffix for sample in data.samples}) > 1:
        data.notes['images have several suffixes, of which MMSegmentation reads one (img_suffix)'].append(str(dst))
    for sample in data.samples:
        label_map = np.full((sample.height, sample.width), fill, np.uint8)
        for one in sorted(sample.objects, key=lambda one: -one['area']):  # small ones in front
            if not one.get('segmentation'):
                data.notes['objects with a box alone were drawn as rectangles'].append(str(sample.path))
            label_map[coco_mask.decode(rle(one, sample)) > 0] = one['category_id']
        (dst / 'labels' / sample.split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(label_map).save(dst / 'labels' / sample.split / f'{sample.path.stem}.png')
    (dst / 'classes.txt').write_text(''.join(f'{name}\n' for name in data.classes), encoding='utf-8')


def _write_yolo(data: Data, dst: Path) -> None:
    content = {sample.split: f'images/{sample.split}' for sample in data.samples}
    content['names'] = dict(enumerate(data.classes))
    write_atomically(dst / 'data.yaml', yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    for sample in data.samples:
        lines = []
        for one in sample.objects:
            pieces = yolo.detections_to_yolo_annotations(
                _detection(one, sample), (sample.height, sample.width, 3), approximation_percentage=0.)
            if len(pieces) > 1:
                data.notes['each piece of a mask became an object, because YOLO joins none'].append(str(sample.path))
            lines += [f'{piece}\n' for piece in pieces]
        write_atomically(dst / 'labels' / sample.split / f'{sample.path.stem}.txt', ''.join(lines))


def _detection(one: dict[str, Any], sample: Sample) -> sv.Detections:
    """Return one object as supervision's writers take it."""
    mask = coco_mask.decode(rle(one, sample)).astype(bool)[None] if one.get('segmentation') else None
    return sv.Detections(sv.xywh_to_xyxy(np.array([one['bbox']])), mask, class_id=np.array([one['category_id']]))


def _write_labelme(data: Data, dst: Path) -> None:
    for sample in data.samples:
        shapes = []
        for one in sample.objects:
            pieces = labelme.detections_to_labelme_shapes(_detection(one, sample), data.classes)
            shapes += [dict(piece, group_id=len(shapes) if len(pieces) > 1 else None) for piece in pieces]
        content = dict(version='5.5.0', flags={}, shapes=shapes, imagePath=sample.path.name, imageData=None,
                       imageHeight=sample.height, imageWidth=sample.width)
        write_atomically(dst / sample.split / f'{sample.path.stem}.json', json.dumps(content, indent=2))


def print_notes(data: Data) -> None:
    """Print what could not be converted, with the number of places and the first one."""
    for note, places in data.notes.items():
        if places:
            print(f'note: {note} ({len(places)} times, first: {places[0]})')


WRITERS = dict(coco=_write_coco, masks=_write_masks, yolo=_write_yolo, labelme=_write_labelme)
