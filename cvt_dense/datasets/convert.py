"""Detection and segmentation data from YOLO, Pascal VOC, LabelMe, COCO and label maps, and to all but VOC.

Supervision reads the annotations of an image, pycocotools encodes masks.
"""
import itertools
import json
import math
import os
import random
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import yaml
from PIL import Image, PngImagePlugin
from pycocotools import mask as coco_mask

from ..fileio import write_atomically
from . import listing
from .transforms import read_orientation

IGNORED = 255  # of label maps: a pixel that counts neither in the loss nor in the scores
SPLITS = ('train', 'val', 'test')
SPLIT_WORDS = dict(train='train', training='train', val='val', valid='val', validation='val', test='test',
                   testing='test')
COCO_KEYS = {'id', 'image_id', 'category_id', 'bbox', 'segmentation', 'area', 'iscrowd'}  # of an object
UNLABELLED_IGNORED = 'Pixels without an object are not labelled.'  # a COCO file's info.description


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
    origin: dict[str, Any] = field(default_factory=dict)  # what made the annotations; the written files contain it
    notes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add_image(self, path: Path, root: Path) -> Sample:
        """Add a sample without objects for an image file below ``root``, with its size after EXIF rotation."""
        try:
            with Image.open(path) as image:
                width, height = image.size[::-1] if read_orientation(image) >= 5 else image.size
        except Image.DecompressionBombError as error:
            raise ValueError(f'{path}: {error}') from error
        self.samples.append(Sample(path, split_name(path.relative_to(root)), width, height))
        return self.samples[-1]

    def pair(self, names: dict[Path, str], root: Path, key: Callable[[Path], str]) -> Iterator[tuple[Path, Sample]]:
        """Add a sample for every image, and yield each annotation file with the sample of its image.

        Args:
            names: annotation files, and the key of each one's image.
            root: folder of the images.
            key: returns the key of an image file.
        """
        images = defaultdict(list)
        for image in images_below(root):
            images[key(image)].append(image)
        for path, name in names.items():
            if images[name]:  # of several images with this name the one in the nearest folder
                nearest = max(images[name], key=lambda image: len(os.path.commonpath([image, path])))
                images[name].remove(nearest)
                yield path, self.add_image(nearest, root)
            else:
                self.notes['annotations without an image were left out'].append(str(path))
        for path in itertools.chain.from_iterable(images.values()):
            self.add_image(path, root)
            self.notes['images without annotations have no objects'].append(str(path))

    def add_detections(self, sample: Sample, detections: Any) -> None:
        """Add the objects that supervision has read."""
        labels = [] if detections.class_id is None else detections.class_id.tolist()
        for i, (box, label) in enumerate(zip(detections.xyxy.tolist(), labels)):
            if not 0 <= label < len(self.classes):
                raise ValueError(f'class {label} is not one of the {len(self.classes)} classes.')
            new = dict(category_id=label, bbox=[box[0], box[1], box[2] - box[0], box[3] - box[1]], iscrowd=0)
            if detections.mask is not None and detections.mask[i].any():
                new['segmentation'] = encode(detections.mask[i])
            self.add_object(sample, new)

    def add_label_map(self, sample: Sample, pixels: np.ndarray) -> None:
        """Add one object for each class of a label map (H, W), without the pixels that are ``IGNORED``."""
        for value in np.unique(pixels[pixels != IGNORED]).tolist():
            self.classes += [str(number) for number in range(len(self.classes), value + 1)]
            mask = encode(pixels == value)
            self.add_object(sample, dict(category_id=value, bbox=coco_mask.toBbox(mask).tolist(), iscrowd=0,
                                         segmentation=mask))

    def add_object(self, sample: Sample, new: dict[str, Any]) -> None:
        """Add an object whose box is cut to the image, unless nothing is left of it."""
        x, y, w, h = new['bbox']
        left, top = max(x, 0.), max(y, 0.)
        right, bottom = min(x + w, sample.width), min(y + h, sample.height)
        if max(left - x, top - y, x + w - right, y + h - bottom) > 1:
            self.notes['boxes that reach beyond the image were cut'].append(str(sample.path))
        if right <= left or bottom <= top:
            self.notes['objects without an area in the image were left out'].append(str(sample.path))
            return
        new['bbox'] = [left, top, right - left, bottom - top]
        if 'area' not in new:
            box_area = (right - left) * (bottom - top)
            new['area'] = float(coco_mask.area(rle(new, sample)) if new.get('segmentation') else box_area)
        sample.objects.append(new)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise ``ValueError`` with the name of an annotation file whose content cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, yaml.YAMLError) as error:
        why = f'there is no {error}' if isinstance(error, KeyError) else error
        raise ValueError(f'{path} cannot be read: {why}') from error


def split_name(path: Path) -> str:
    """Return the split that a word of a folder's name in ``path`` names: 'train', 'val' or 'test'; otherwise 'train'.

    'val2017', 'my_valid' and 'testing' name a split, 'festival' and 'latest' do not.
    """
    words = re.findall('[a-z]+', '/'.join(path.parts[:-1]).lower())
    found = [SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS]
    return found[-1] if found else 'train'


def encode(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask (H, W) as COCO's compressed run lengths."""
    found = coco_mask.encode(np.asfortranarray(mask, np.uint8))
    return dict(size=found['size'], counts=found['counts'].decode())


def rle(one: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """Return an object's segmentation (polygons or run lengths), or else its box, as compressed run lengths."""
    x, y, w, h = one['bbox']
    found = one.get('segmentation') or [[x, y, x + w, y, x + w, y + h, x, y + h]]
    if isinstance(found, list) or isinstance(found['counts'], list):
        found = coco_mask.frPyObjects(found, sample.height, sample.width)
    return coco_mask.merge(found) if isinstance(found, list) else found


def images_below(folder: Path) -> list[Path]:
    """Return the image files below a folder in alphabetical order, through links, without hidden ones."""
    return sorted(Path(image['img_path']) for image in listing.images_below(str(folder)))


# -- readers: each adds the classes and the samples of a folder -------------------------------------


def read_yolo(src: Path, data: Data) -> None:
    """Read ``data.yaml`` with ``names``, and one text file per image, in ``labels`` for images in ``images``."""
    from supervision.dataset.formats.yolo import yolo_annotations_to_detections
    files = [*src.glob('*.yaml'), *src.glob('*.yml')]
    with naming(files[0] if files else src):
        content = (yaml.safe_load(files[0].read_text(encoding='utf-8-sig')) or {}) if len(files) == 1 else {}
    names, keypoints = content.get('names'), math.prod(content.get('kpt_shape') or [0])
    if not isinstance(names, (list, dict)) or not names:
        raise ValueError(f'{src} holds {len(files)} .yaml files; allowed is one, whose "names" are the classes: a '
                         'list, or names by number.')
    with naming(files[0]):
        numbered = names.items() if isinstance(names, dict) else enumerate(names)
        by_number = {int(number): str(name) for number, name in numbered}
    data.classes = [by_number.get(number, str(number)) for number in range(max(by_number) + 1)]
    for path in images_below(src):
        sample = data.add_image(path, src)
        parts = path.relative_to(src).with_suffix('.txt').parts
        label = src.joinpath(*('labels' if part == 'images' else part for part in parts))
        if not label.is_file():
            data.notes['images without annotations have no objects'].append(str(path))
            continue
        with naming(label):
            lines = [line for line in label.read_text(encoding='utf-8-sig').splitlines() if line.strip()]
        if keypoints and any(len(line.split()) >= 5 + keypoints for line in lines):
            lines = [' '.join(line.split()[:5]) for line in lines]
            data.notes['keypoints were left out'].append(str(label))
        if any(len(line.split()) % 2 == 0 for line in lines):
            data.notes['numbers after boxes and polygons, such as scores, were left out'].append(str(label))
        with naming(label):
            for masks in (True, False):
                chosen = [line for line in lines if (len(line.split()) > 6) == masks]  # as supervision's polygons
                size = sample.width, sample.height
                data.add_detections(sample, yolo_annotations_to_detections(chosen, size, masks))


def read_voc(src: Path, data: Data) -> None:
    """Read an XML file of the same name for each image, and ``ImageSets/Main/{train,val,test}.txt`` if they exist."""
    from supervision.dataset.formats.pascal_voc import detections_from_xml_obj
    trees = {}
    for path in sorted(src.rglob('*.xml')):
        with naming(path):
            trees[path] = ElementTree.parse(path).getroot()
    splits = {line.split()[0]: path.stem for path in sorted(src.rglob('ImageSets/Main/*.txt'))
              for line in path.read_text().splitlines() if line.strip() and path.stem in SPLITS}
    for path, root in trees.items():
        if not all(node.text and node.text.strip() for node in root.findall('object/name')):
            raise ValueError(f'{path} cannot be read: an object has no name.')
    data.classes = sorted({node.text for root in trees.values() for node in root.findall('object/name')})
    for path, sample in data.pair({path: path.stem for path in trees}, src, lambda image: image.stem):
        sample.split = splits.get(path.stem, sample.split)
        for mark in ('difficult', 'truncated', 'occluded', 'pose', 'part'):
            values = {node.text for node in trees[path].findall(f'object/{mark}')}
            if values - {'0', 'Unspecified'}:
                data.notes[f'{mark!r} of objects was left out'].append(str(path))
        with naming(path):
            size = sample.width, sample.height
            data.add_detections(sample, detections_from_xml_obj(trees[path], data.classes, size)[0])


def read_labelme(src: Path, data: Data) -> None:
    """Read JSON files, each of which names its image as ``imagePath``."""
    from supervision.dataset.formats.labelme import SUPPORTED_SHAPE_TYPES, labelme_shapes_to_detections
    contents, names = {}, {}
    for path in sorted(src.rglob('*.json')):
        with naming(path):
            contents[path] = content = json.loads(path.read_text(encoding='utf-8-sig'))
            names[path] = re.split(r'[/\\]', content['imagePath'])[-1]
            for shape in list(content['shapes']):
                for mark in ('group_id', 'flags', 'description'):
                    if shape.pop(mark, None) not in (None, {}, ''):  # supervision would join a group's shapes
                        data.notes[f'{mark!r} of shapes was left out'].append(str(path))
                short = shape['shape_type'] == 'polygon' and len(shape['points']) < 3
                if short or shape['shape_type'] not in SUPPORTED_SHAPE_TYPES:
                    what = 'polygons of fewer than three points' if short else f'shapes of type {shape["shape_type"]!r}'
                    data.notes[f'{what} were left out'].append(str(path))
                    content['shapes'].remove(shape)
    data.classes = sorted({shape['label'] for content in contents.values() for shape in content['shapes']})
    numbers = {name: number for number, name in enumerate(data.classes)}
    for path, sample in data.pair(names, src, lambda image: image.name):
        with naming(path):
            for kind, masks in (('polygon', True), ('rectangle', False)):
                shapes = [shape for shape in contents[path]['shapes'] if shape['shape_type'] == kind]
                size = sample.width, sample.height
                data.add_detections(sample, labelme_shapes_to_detections(shapes, numbers, size, masks))


def read_coco(src: Path, data: Data) -> None:
    """Read JSON files in COCO's format, whose images may be in any folder."""
    images: dict[str, list[Path]] = defaultdict(list)
    for path in images_below(src):
        images[path.name].append(path)
    used: set[Path] = set()
    for file in sorted(src.rglob('*.json')):
        with naming(file):
            used |= _read_coco_file(file, src, images, data)
    for path in itertools.chain.from_iterable(images.values()):
        if path not in used:
            data.notes['images that no annotation file names were left out'].append(str(path))


def _read_coco_file(file: Path, src: Path, images: dict[str, list[Path]], data: Data) -> set[Path]:
    """Add the samples of a file, and return their images."""
    content = json.loads(file.read_text(encoding='utf-8-sig'))
    if not isinstance(content, dict) or not {'images', 'annotations', 'categories'} <= content.keys():
        data.notes['JSON files without images, annotations and categories were left out'].append(str(file))
        return set()
    data.background &= (content.get('info') or {}).get('description') != UNLABELLED_IGNORED
    names = {category['id']: category['name'] for category in content['categories']}
    data.classes += [name for name in names.values() if name not in data.classes]
    samples, part = {}, split_name(file.relative_to(src) / 'x')
    for image in content['images']:
        found = _find_image(image['file_name'], images)
        found = [path for path in found if split_name(path.relative_to(src)) == part] or found
        if not found:
            data.notes['annotations without an image were left out'].append(image['file_name'])
            continue
        if len(found) > 1:
            data.notes['several images have the name in the annotation file, of which the first was taken'].append(
                image['file_name'])
        if image['id'] in samples:
            raise ValueError(f'two images have the id {image["id"]}')
        samples[image['id']] = sample = data.add_image(found[0], src)
        sample.split, size = part, (image.get('width', sample.width), image.get('height', sample.height))
        if size != (sample.width, sample.height):
            raise ValueError(f'{image["file_name"]} has the size {size[0]}x{size[1]} there, and {sample.width}x'
                             f'{sample.height} as it is read, upright: its boxes are for another image')
    known = {image['id'] for image in content['images']}
    for one in content['annotations']:
        if one['image_id'] not in known:
            data.notes['objects of an unknown image_id were left out'].append(str(file))
        if one['image_id'] in samples:
            sample = samples[one['image_id']]
            kept = {key: one[key] for key in ('bbox', 'segmentation', 'area') if one.get(key)}
            if 'segmentation' in kept and not _check_segmentation(kept, sample):
                data.notes['polygons without an area were left out'].append(str(file))
            label = data.classes.index(names[one['category_id']])
            data.add_object(sample, dict(kept, category_id=label, iscrowd=one.get('iscrowd', 0)))
        for key in sorted(one.keys() - COCO_KEYS):
            data.notes[f'{key} of objects were left out'].append(str(file))
    return {sample.path for sample in samples.values()}


def _find_image(name: str, images: dict[str, list[Path]]) -> list[Path]:
    """Return the images that a ``file_name`` means: those whose path ends with it, or of an absolute one best does."""
    parts = [part for part in re.split(r'[/\\]', name) if part not in ('', '.', '..')]
    absolute = name.startswith(('/', '\\')) or ':' in parts[0]

    def common(path: Path) -> int:
        return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1],
                                                  zip(reversed(path.parts), reversed(parts))))

    found = images.get(parts[-1], [])
    best = max(map(common, found), default=0) if absolute else len(parts)
    return [path for path in found if common(path) == best]


def _check_segmentation(one: dict[str, Any], sample: Sample) -> bool:
    """Remove polygons of fewer than three points from an object, and return whether all of its own stay.

    Raises:
        ValueError: run lengths are for an image of another size.
    """
    found = one['segmentation']
    if isinstance(found, dict):
        if list(found['size']) != [sample.height, sample.width]:
            raise ValueError(f'a mask has the size {found["size"]}, its image {[sample.height, sample.width]}')
        return True
    one['segmentation'] = [polygon for polygon in found if len(polygon) >= 6]
    return len(one['segmentation']) == len(found)


def read_masks(src: Path, data: Data) -> None:
    """Read ``images/**``, label maps of the same names in ``labels/**`` or ``annotations/**``, and ``classes.txt``."""
    data.background = False
    folder = next((src / name for name in ('labels', 'annotations') if (src / name).is_dir()), src)
    if (src / 'classes.txt').is_file():
        with naming(src / 'classes.txt'):
            lines = (src / 'classes.txt').read_text(encoding='utf-8-sig').splitlines()
        data.classes = [line.strip() for line in lines if line.strip()]
    else:
        data.notes['classes have numbers for names, because there is no classes.txt'].append(str(src))
    allowed = len(data.classes) or IGNORED
    for path in images_below(src / 'images'):
        label = (folder / path.relative_to(src / 'images')).with_suffix('.png')
        if not label.is_file():
            data.notes['images without annotations were left out'].append(str(path))
            continue
        sample, pixels = data.add_image(path, src), np.asarray(Image.open(label))
        values = np.unique(pixels[pixels != IGNORED]).tolist()
        if pixels.shape != (sample.height, sample.width) or max(values, default=0) >= allowed:
            raise ValueError(f'{label}, shape {pixels.shape}, values {values[-5:]}: allowed are the shape '
                             f'{(sample.height, sample.width)} and values below {allowed}.')
        data.add_label_map(sample, pixels)
    data.notes['label maps do not separate objects: each class became one object of its image'].append(str(src))


READERS = dict(yolo=read_yolo, voc=read_voc, labelme=read_labelme, coco=read_coco, masks=read_masks)


def read(src: Path, source: str) -> Data:
    """Read a data set.

    Args:
        src: folder of the data.
        source: format, one of ``READERS``.

    Raises:
        FileNotFoundError: there is no such folder, or no annotated image in it.
        ValueError: an annotation cannot be read.
    """
    if not src.is_dir():
        raise FileNotFoundError(f'The folder {src} does not exist.')
    data = Data()
    READERS[source](src, data)
    if not any(sample.objects for sample in data.samples):
        raise FileNotFoundError(f'{src} holds no annotated image in the format {source!r} '
                                f'({len(data.samples)} images were found).')
    data.samples.sort(key=lambda sample: str(sample.path))
    return data


# -- splits ----------------------------------------------------------------------------------------


def split(data: Data, fractions: Sequence[float], seed: int = 0, group: str | None = None) -> None:
    """Divide the samples so that each part has the same fraction of every class (Sechidis et al. 2011).

    Args:
        data: changed in place.
        fractions: the fractions of 'train', 'val' and 'test', with the sum 1.
        seed: seed of the random numbers.
        group: regular expression; images whose names match it with the same text, or the same first group, stay
            together. None: each image is a group.

    Raises:
        ValueError: wrong fractions or pattern, fewer groups than parts, or a part without an image.
    """
    if not 2 <= len(fractions) <= 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f'fractions {list(fractions)}: allowed are two or three positive numbers with the sum 1.')
    members: dict[str, list[Sample]] = defaultdict(list)
    try:
        pattern = re.compile(group or '(?!)')  # which matches nothing
    except re.error as error:
        raise ValueError(f'{group!r} is no regular expression: {error}.') from error
    for sample in data.samples:
        match = pattern.search(sample.path.name)
        key = (match.group(1) if match.re.groups else match.group()) if match else str(sample.path)
        members[key].append(sample)
    if len(members) < len(fractions):
        raise ValueError(f'{len(members)} groups of images cannot be divided into {len(fractions)} parts.')
    keys = sorted(members)
    random.Random(seed).shuffle(keys)
    counts = {key: Counter(one['category_id'] for sample in members[key] for one in sample.objects) for key in keys}
    total = sum(counts.values(), Counter())
    wanted = [Counter({label: number * fraction for label, number in total.items()}) for fraction in fractions]
    room = [fraction * len(data.samples) for fraction in fractions]
    names = SPLITS[:len(fractions)]
    while keys:
        left = Counter(label for key in keys for label in counts[key])
        rarest = min(left, key=lambda label: (left[label], label)) if left else None
        chosen = {key: counts[key][rarest] for key in keys if rarest is None or counts[key][rarest]}
        for key in sorted(chosen, key=chosen.get, reverse=True):
            part = max(range(len(fractions)), key=lambda i: (wanted[i][rarest], room[i]))
            wanted[part].subtract(counts[key])
            room[part] -= len(members[key])
            for sample in members[key]:
                sample.split = names[part]
        keys = [key for key in keys if key not in chosen]
    for name, fraction in zip(names, fractions):
        if not any(sample.split == name for sample in data.samples):
            raise ValueError(f'{name} gets no image, because {fraction:g} of {len(members)} groups of images is too '
                             'little: give it a larger fraction, or smaller groups.')
        present = {one['category_id'] for sample in data.samples if sample.split == name for one in sample.objects}
        for label in sorted(set(total) - present):
            data.notes[f'{name} has no object of a class'].append(data.classes[label])


# -- writers ---------------------------------------------------------------------------------------


def output_files(data: Data, dst: Path, target: str) -> dict[Path, Sample]:
    """Return the path of each sample's image in the result.

    Args:
        data: the samples.
        dst: folder of the result.
        target: format, one of ``WRITERS``.

    Raises:
        ValueError: two images of a split would get the same name, or label maps cannot hold as many classes.
    """
    if target == 'masks' and len(data.classes) >= IGNORED:
        raise ValueError(f'{len(data.classes)} classes do not fit into 8-bit label maps, which have {IGNORED} with '
                         'the background.')
    folder = dst / 'images' if target in ('masks', 'yolo') else dst
    files, stems = {}, {}
    for sample in data.samples:
        other = stems.setdefault((sample.split, sample.path.stem), sample)
        if other is not sample:
            raise ValueError(f'{other.path} and {sample.path} would get one name in one split: rename one.')
        files[folder / sample.split / sample.path.name] = sample
    return files


def annotation_files(files: dict[Path, Sample], dst: Path, target: str) -> list[Path]:
    """Return the paths of all files that :func:`write` writes beside the images.

    Args:
        files: what :func:`output_files` returned.
        dst: folder of the result.
        target: format, one of ``WRITERS``.
    """
    if target == 'coco':
        return [dst / 'annotations' / f'{part}.json' for part in sorted({sample.split for sample in files.values()})]
    lists = dict(masks=[dst / 'classes.txt'], yolo=[dst / 'data.yaml'], labelme=[])
    return [_label_file(path, sample, dst, target) for path, sample in files.items()] + lists[target]


def _label_file(path: Path, sample: Sample, dst: Path, target: str) -> Path:
    """Return the annotation file of one image, whose path in the result is ``path``."""
    folder = path.parent if target == 'labelme' else dst / 'labels' / sample.split
    return folder / f'{path.stem}.{dict(labelme="json", masks="png", yolo="txt")[target]}'


def write(data: Data, files: dict[Path, Sample], dst: Path, target: str) -> None:
    """Write images and annotations.

    Args:
        data: samples and classes; notes are added.
        files: what :func:`output_files` returned.
        dst: folder.
        target: 'coco' for ``annotations/<split>.json``, 'masks' for ``labels/<split>/*.png`` and ``classes.txt``,
            'yolo' for ``labels/<split>/*.txt`` and ``data.yaml``, or 'labelme' for a JSON file beside each image.
    """
    for path, sample in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sample.path, path)
    for path in annotation_files(files, dst, target):
        path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[target](data, files, dst)


def _write_coco(data: Data, files: dict[Path, Sample], dst: Path) -> None:
    categories = [dict(id=i, name=name) for i, name in enumerate(data.classes, 1)]
    info = data.origin | ({} if data.background else dict(description=UNLABELLED_IGNORED))
    for part in sorted({sample.split for sample in files.values()}):
        images, annotations = [], []
        for i, (path, sample) in enumerate(((p, s) for p, s in files.items() if s.split == part), 1):
            images.append(dict(id=i, file_name=path.name, width=sample.width, height=sample.height))
            annotations += [dict(one, id=len(annotations) + number, image_id=i, category_id=one['category_id'] + 1)
                            for number, one in enumerate(sample.objects, 1)]
        content = dict(info=info, images=images, annotations=annotations, categories=categories)
        write_atomically(dst / 'annotations' / f'{part}.json', json.dumps(content))


def _write_masks(data: Data, files: dict[Path, Sample], dst: Path) -> None:
    classes = list(data.classes)
    if data.background and 'background' not in classes:
        classes.append('background')
        data.notes["pixels without an object became the class 'background', the last one"].append(str(dst))
    fill = classes.index('background') if data.background else IGNORED
    if len({path.suffix for path in files}) > 1:
        data.notes['images have several suffixes, of which MMSegmentation reads one (img_suffix)'].append(str(dst))
    text = PngImagePlugin.PngInfo()
    for key, value in data.origin.items():
        text.add_text(key, str(value))
    for path, sample in files.items():
        label_map = np.full((sample.height, sample.width), fill, np.uint8)
        for one in sorted(sample.objects, key=lambda one: -one['area']):  # small ones in front
            if not one.get('segmentation'):
                data.notes['objects with a box alone were drawn as rectangles'].append(str(sample.path))
            mask = coco_mask.decode(rle(one, sample)).astype(bool)
            if (label_map[mask] != fill).any():
                data.notes['objects cover others, of which the smaller ones are kept in front'].append(str(sample.path))
            label_map[mask] = one['category_id']
        Image.fromarray(label_map).save(_label_file(path, sample, dst, 'masks'), pnginfo=text)
    (dst / 'classes.txt').write_text(''.join(f'{name}\n' for name in classes), encoding='utf-8')
    data.classes = classes


def _write_yolo(data: Data, files: dict[Path, Sample], dst: Path) -> None:
    splits = {part: f'images/{part}' for part in SPLITS if any(sample.split == part for sample in files.values())}
    content = dict(splits, names=dict(enumerate(data.classes))) | (dict(origin=data.origin) if data.origin else {})
    write_atomically(dst / 'data.yaml', yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    for path, sample in files.items():
        lines = []
        for one in sample.objects:
            x, y, w, h = one['bbox']
            points = _outline(one, sample, data)
            numbers = np.array([[x + w / 2, y + h / 2], [w, h]] if points is None else points)
            numbers = (numbers / (sample.width, sample.height)).ravel()
            lines.append(' '.join([str(one['category_id']), *(f'{number:.6f}' for number in numbers)]) + '\n')
        write_atomically(_label_file(path, sample, dst, 'yolo'), ''.join(lines))


def _write_labelme(data: Data, files: dict[Path, Sample], dst: Path) -> None:
    for path, sample in files.items():
        shapes = []
        for one in sample.objects:
            x, y, w, h = one['bbox']
            points = _outline(one, sample, data)
            shapes.append(dict(
                label=data.classes[one['category_id']], points=[[x, y], [x + w, y + h]] if points is None else points,
                shape_type='rectangle' if points is None else 'polygon', group_id=None, description='', flags={}))
        content = dict(version='5.5.0', flags={}, shapes=shapes, imagePath=path.name, imageData=None,
                       imageHeight=sample.height, imageWidth=sample.width)
        content |= dict(origin=data.origin) if data.origin else {}
        write_atomically(_label_file(path, sample, dst, 'labelme'), json.dumps(content, indent=2))


def _outline(one: dict[str, Any], sample: Sample, data: Data) -> list[list[float]] | None:
    """Return the polygon around the largest piece of an object's mask, to one pixel, or None if it has only a box."""
    if not one.get('segmentation'):
        return None
    found, _ = cv2.findContours(coco_mask.decode(rle(one, sample)), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if len(found) > 1:
        data.notes['pieces of masks other than the largest were left out'].append(str(sample.path))
    polygon = cv2.approxPolyDP(max(found, key=cv2.contourArea), 1., True)[:, 0] if found else ()
    return polygon.tolist() if len(polygon) > 2 else None


WRITERS = dict(coco=_write_coco, masks=_write_masks, yolo=_write_yolo, labelme=_write_labelme)
