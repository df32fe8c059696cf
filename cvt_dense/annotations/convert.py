"""Detection data from YOLO, Pascal VOC, LabelMe and COCO, to COCO, YOLO, LabelMe and label maps.

Supervision reads and writes the annotations of an image, pycocotools encodes masks.
"""
import json
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
from ..images import images_below, upright_size

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

    def add_image(self, path: Path, root: Path) -> Sample:
        """Add a sample without objects for an image file below ``root``, with its size after EXIF rotation."""
        with naming(path), Image.open(path) as image:
            self.samples.append(Sample(path, split_name(path.relative_to(root)), *upright_size(image)))
        return self.samples[-1]

    def add_images(self, names: dict[Path, str], root: Path, key: Callable[[Path], str]
                   ) -> Iterator[tuple[Path, Sample]]:
        """Add a sample for every image, and yield each annotation file with the sample of its image.

        Args:
            names: annotation files, and the key of each one's image.
            root: folder of the images.
            key: returns the key of an image file.
        """
        images = images_by(key, root)
        for file, name in names.items():
            image = self.take_image(images[name], file, root)
            if image is not None:
                yield file, self.add_image(image, root)
        for image in (image for unused in images.values() for image in unused):
            self.add_image(image, root)
            self.notes['images without annotations have no objects'].append(str(image))

    def take_image(self, images: list[Path], file: Path, root: Path, ending: str = '') -> Path | None:
        """Remove the image of an annotation file from ``images`` and return it, or None if there is none.

        Of several it is the one whose path has most words in common with the path of the annotation file.

        Args:
            images: images with the right name.
            file: annotation file.
            root: folder of both.
            ending: what the image's path must end with.
        """
        found = [image for image in images if f'/{image.as_posix()}'.endswith(ending)]
        if not found:
            self.notes['annotations without an image were left out'].append(f'{file} {ending}'.strip())
            return None
        common = [len(path_words(image, root) & path_words(file, root)) for image in found]
        if common.count(max(common)) > 1:
            self.notes['several images have the name in an annotation; the first was taken'].append(str(file))
        image = found[common.index(max(common))]
        images.remove(image)
        return image

    def add_detections(self, sample: Sample, detections: sv.Detections, crowds: Sequence[int] = ()) -> None:
        """Add the objects that supervision has read; ``crowds`` has their ``iscrowd``, if any is not 0."""
        for (box, mask, _, label, _, _), crowd in zip(detections, crowds or [0] * len(detections)):
            if not 0 <= label < len(self.classes):
                raise ValueError(f'class {label} is not one of the {len(self.classes)} classes.')
            new = dict(category_id=int(label), bbox=sv.xyxy_to_xywh(box[None])[0].tolist(), iscrowd=crowd)
            if mask is not None and mask.any():
                new['segmentation'] = encode(mask)
            self.add_object(sample, new)

    def add_label_map(self, sample: Sample, pixels: np.ndarray) -> None:
        """Add one object for each class of a label map (H, W), without the pixels that are ``IGNORED``."""
        for value in np.unique(pixels[pixels != IGNORED]).tolist():
            mask = encode(pixels == value)
            self.add_object(sample, dict(category_id=value, bbox=coco_mask.toBbox(mask).tolist(), iscrowd=0,
                                         segmentation=mask))

    def add_object(self, sample: Sample, new: dict[str, Any]) -> None:
        """Add an object whose box is cut to the image, unless nothing is left of it."""
        x, y, w, h = new['bbox']
        left, right = np.clip([x, x + w], 0, sample.width).tolist()
        top, bottom = np.clip([y, y + h], 0, sample.height).tolist()
        if w - (right - left) > 1 or h - (bottom - top) > 1:
            self.notes['boxes that reach beyond the image were cut'].append(str(sample.path))
        if right <= left or bottom <= top:
            self.notes['objects without an area in the image were left out'].append(str(sample.path))
            return
        new['bbox'] = [left, top, right - left, bottom - top]
        area = coco_mask.area(rle(new, sample)) if new.get('segmentation') else (right - left) * (bottom - top)
        new.setdefault('area', float(area))
        sample.objects.append(new)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise ``ValueError`` with the name of a file whose content cannot be read."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, SyntaxError, OSError, yaml.YAMLError,
            Image.DecompressionBombError) as error:
        why = f'there is no {error}' if isinstance(error, KeyError) else error
        raise ValueError(f'{path} cannot be read: {why}') from error


def split_name(path: Path) -> str:
    """Return the split that a word of a folder's name in ``path`` names: 'train', 'val' or 'test'; otherwise 'train'.

    'val2017', 'my_valid' and 'testing' name a split, 'festival' and 'latest' do not.
    """
    word = '(?<![a-z])(train|val|test)(?:ing|id|idation)?(?![a-z])'
    return (re.findall(word, '/'.join(path.parts[:-1]).lower()) or ['train'])[-1]


def path_words(path: Path, root: Path) -> set[str]:
    """Return the words in a path below ``root``, such as 'val2017' in 'annotations/instances_val2017.json'."""
    return set(re.findall('[a-z0-9]+', str(path.relative_to(root)).lower()))


def encode(mask: np.ndarray) -> dict[str, Any]:
    """Return a mask (H, W) as COCO's compressed run lengths."""
    found = coco_mask.encode(np.asfortranarray(mask, np.uint8))
    return dict(size=found['size'], counts=found['counts'].decode())


def check_size(sample: Sample, *given: str | float | None) -> None:
    """Raise ``ValueError`` if an annotation file gives an image another size; 0 and None are unknown."""
    given = tuple(int(side or 0) for side in given)
    if all(given) and given != (sample.width, sample.height):
        raise ValueError(f'it gives {sample.path.name} {given[0]}x{given[1]} pixels, but upright (EXIF applied) it has '
                         f'{sample.width}x{sample.height}; correct the file, or restore the image')


def rle(one: dict[str, Any], sample: Sample) -> dict[str, Any]:
    """Return an object's segmentation (polygons or run lengths), or else its box, as compressed run lengths."""
    x, y, w, h = one['bbox']
    found = one.get('segmentation') or [[x, y, x + w, y, x + w, y + h, x, y + h]]
    if isinstance(found, list) or isinstance(found['counts'], list):
        found = coco_mask.frPyObjects(found, sample.height, sample.width)
    return coco_mask.merge(found) if isinstance(found, list) else found


def images_by(key: Callable[[Path], str], folder: Path) -> dict[str, list[Path]]:
    """Return the image files below a folder by what ``key`` returns for each."""
    images = defaultdict(list)
    for image in sorted(map(Path, images_below(folder))):
        images[key(image)].append(image)
    return images


# -- readers: each adds the classes and the samples of a folder -------------------------------------


def read_yolo(src: Path, data: Data) -> None:
    """Read ``data.yaml`` with ``names``, and one text file per image, in ``labels`` for images in ``images``."""
    files = [*src.glob('*.yaml'), *src.glob('*.yml')]
    if len(files) != 1:
        raise ValueError(f'{src} holds {len(files)} .yaml files; allowed is one, whose "names" are the classes.')
    with naming(files[0]):
        content = yaml.safe_load(files[0].read_text(encoding='utf-8-sig'))
        names = content['names'] if isinstance(content['names'], dict) else dict(enumerate(content['names']))
        by_number = {int(number): str(name) for number, name in names.items()}
        data.classes = [by_number.get(number, str(number)) for number in range(max(by_number) + 1)]
    for path in sorted(map(Path, images_below(src))):
        sample = data.add_image(path, src)
        parts = path.relative_to(src).with_suffix('.txt').parts
        label = src.joinpath(*('labels' if part == 'images' else part for part in parts))
        if not label.is_file():
            data.notes['images without annotations have no objects'].append(str(path))
            continue
        with naming(label):
            lines = [line.split() for line in label.read_text(encoding='utf-8-sig').splitlines() if line.strip()]
            if 'kpt_shape' in content:
                data.notes['keypoints were left out'].append(str(label))
                lines = [line[:5] for line in lines]
            for polygons in (True, False):
                chosen = [' '.join(line) for line in lines if (len(line) > 6) == polygons]
                size = sample.width, sample.height
                data.add_detections(sample, yolo.yolo_annotations_to_detections(chosen, size, polygons))


def read_voc(src: Path, data: Data) -> None:
    """Read an XML file of the same name for each image, and ``ImageSets/Main/{train,val,test}.txt`` if they exist."""
    trees = {}
    for path in sorted(src.rglob('*.xml')):
        with naming(path):
            trees[path] = ElementTree.parse(path).getroot()
    splits = {line.split()[0]: path.stem for path in sorted(src.rglob('ImageSets/Main/*.txt'))
              for line in path.read_text().splitlines() if line.strip() and path.stem in SPLITS}
    data.classes = sorted({node.text or '' for root in trees.values() for node in root.findall('object/name')})
    for path, sample in data.add_images({path: path.stem for path in trees}, src, lambda image: image.stem):
        sample.split = splits.get(path.stem, sample.split)
        with naming(path):
            size = sample.width, sample.height
            check_size(sample, trees[path].findtext('size/width'), trees[path].findtext('size/height'))
            crowds = [int(one.findtext('difficult') or 0) for one in trees[path].findall('object')]
            data.add_detections(sample, pascal_voc.detections_from_xml_obj(trees[path], data.classes, size)[0], crowds)


def read_labelme(src: Path, data: Data) -> None:
    """Read JSON files, each of which names its image as ``imagePath``."""
    shapes, names, sizes = {}, {}, {}
    for path in sorted(src.rglob('*.json')):
        with naming(path):
            content = json.loads(path.read_text(encoding='utf-8-sig'))
            names[path] = PureWindowsPath(content['imagePath']).name  # takes slashes too
            sizes[path] = content.get('imageWidth'), content.get('imageHeight')
            others = {shape['shape_type'] for shape in content['shapes']} - set(labelme.SUPPORTED_SHAPE_TYPES)
            for kind in sorted(others):
                data.notes[f'shapes of type {kind!r} were left out'].append(str(path))
            shapes[path] = [shape for shape in content['shapes'] if shape['shape_type'] not in others]
            data.classes = sorted({*data.classes, *(shape['label'] for shape in shapes[path])})
    numbers = {name: number for number, name in enumerate(data.classes)}
    for path, sample in data.add_images(names, src, lambda image: image.name):
        with naming(path):
            check_size(sample, *sizes[path])
            for kind, masks in (('polygon', True), ('rectangle', False)):
                chosen = [shape for shape in shapes[path] if shape['shape_type'] == kind]
                size = sample.width, sample.height
                data.add_detections(sample, labelme.labelme_shapes_to_detections(chosen, numbers, size, masks))


def read_coco(src: Path, data: Data) -> None:
    """Read JSON files in COCO's format, whose images may be in any folder."""
    images = images_by(lambda image: image.name, src)
    for file in sorted(src.rglob('*.json')):
        with naming(file):
            content = json.loads(file.read_text(encoding='utf-8-sig'))
            if isinstance(content, dict) and {'images', 'annotations', 'categories'} <= content.keys():
                _read_coco_file(content, file, src, images, data)
            else:
                data.notes['JSON files without images, annotations and categories were left out'].append(str(file))
    data.notes['images that no annotation file names were left out'] += [
        str(image) for unused in images.values() for image in unused]


def _read_coco_file(content: dict[str, Any], file: Path, src: Path, images: dict[str, list[Path]], data: Data) -> None:
    names = {category['id']: category['name'] for category in content['categories']}
    if len(set(names.values())) < len(names):
        raise ValueError(f'two categories have one name, of {list(names.values())}')
    data.classes += [name for name in names.values() if name not in data.classes]
    samples: dict[Any, Sample | None] = {}
    for image in content['images']:
        if image['id'] in samples:
            raise ValueError(f'two images have the id {image["id"]}')
        parts = [part for part in re.split(r'[/\\]', image['file_name']) if part not in ('', '.', '..')]
        path = data.take_image(images[parts[-1]], file, src, '/'.join(['', *parts]))
        samples[image['id']] = sample = path and data.add_image(path, src)
        if sample is None:
            continue
        sample.split = split_name(file.relative_to(src) / 'file')
        check_size(sample, image.get('width'), image.get('height'))
    data.notes['keypoints were left out'] += [str(file) for one in content['annotations'] if one.get('keypoints')]
    for one in content['annotations']:
        sample = samples.get(one['image_id'])
        if sample is None:
            data.notes['objects without an image were left out'].append(str(file))
            continue
        kept = {key: one[key] for key in ('bbox', 'segmentation', 'area') if one.get(key)}
        found = kept.get('segmentation', [])
        if isinstance(found, dict) and list(found['size']) != [sample.height, sample.width]:
            raise ValueError(f'a mask has the size {found["size"]}, its image {[sample.height, sample.width]}')
        if any(len(polygon) < 6 for polygon in found if isinstance(found, list)):
            data.notes['polygons without an area were left out'].append(str(file))
            kept['segmentation'] = [polygon for polygon in found if len(polygon) >= 6]
        label, crowd = data.classes.index(names[one['category_id']]), one.get('iscrowd') or one.get('ignore') or 0
        data.add_object(sample, dict(kept, category_id=label, iscrowd=int(crowd)))


READERS = dict(yolo=read_yolo, voc=read_voc, labelme=read_labelme, coco=read_coco)


def read(src: Path, source: str) -> Data:
    """Read a data set.

    Args:
        src: folder of the data.
        source: format, one of ``READERS``.

    Raises:
        FileNotFoundError: there is no annotated image in the folder.
        ValueError: a file cannot be read.
    """
    data = Data()
    READERS[source](src, data)
    if not any(sample.objects for sample in data.samples):
        raise FileNotFoundError(f'{src} holds no annotated image in the format {source!r} '
                                f'({len(data.samples)} images were found).')
    data.samples.sort(key=lambda sample: str(sample.path))
    return data


# -- splits ----------------------------------------------------------------------------------------


def group_by_name(samples: Sequence[Sample], pattern: str | None) -> list[list[Sample]]:
    """Return groups of the samples whose names match ``pattern`` with the same text, or the same first group of it.

    A sample whose name does not match is a group of its own.
    """
    groups = defaultdict(list)
    for sample in samples:
        match = pattern and re.search(pattern, sample.path.name)
        groups[match[min(match.re.groups, 1)] if match else str(sample.path)].append(sample)
    return [groups[key] for key in sorted(groups)]


def split(data: Data, fractions: Sequence[float], seed: int = 0, group: str | None = None) -> None:
    """Divide the samples so that each part has the same fraction of every class (Sechidis et al. 2011).

    Args:
        data: changed in place.
        fractions: the fractions of 'train', 'val' and 'test', with the sum 1.
        seed: seed of the random numbers.
        group: pattern of :func:`group_by_name`, whose groups stay together.

    Raises:
        ValueError: wrong fractions, or a part without an image.
    """
    if not 2 <= len(fractions) <= 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-6:
        raise ValueError(f'fractions {list(fractions)}: allowed are two or three positive numbers with the sum 1.')
    groups = group_by_name(data.samples, group)
    random.Random(seed).shuffle(groups)
    counts = [Counter(one['category_id'] for sample in members for one in sample.objects) for members in groups]
    total = sum(counts, Counter())
    wanted = [Counter({label: number * fraction for label, number in total.items()}) for fraction in fractions]
    room = [fraction * len(data.samples) for fraction in fractions]
    left = dict.fromkeys(range(len(groups)))
    while left:
        remaining = sum((counts[i] for i in left), Counter())
        rarest = min(remaining, key=lambda label: (remaining[label], label), default=None)
        chosen = [i for i in left if rarest is None or counts[i][rarest]]
        for i in sorted(chosen, key=lambda i: counts[i][rarest], reverse=True):
            part = max(range(len(fractions)), key=lambda part: (wanted[part][rarest], room[part]))
            wanted[part].subtract(counts[i])
            room[part] -= len(groups[i])
            del left[i]
            for sample in groups[i]:
                sample.split = SPLITS[part]
    for name, fraction in zip(SPLITS, fractions):
        samples = [sample for sample in data.samples if sample.split == name]
        if not samples:
            raise ValueError(f'{name} gets no image, because {fraction:g} of {len(groups)} groups of images is too '
                             'little: give it a larger fraction, or smaller groups.')
        present = {one['category_id'] for sample in samples for one in sample.objects}
        for label in sorted(set(total) - present):
            data.notes[f'{name} has no object of a class'].append(data.classes[label])


# -- writers ---------------------------------------------------------------------------------------


def check(data: Data, target: str) -> None:
    """Check that data can be written in the format ``target``, one of ``WRITERS``.

    Raises:
        ValueError: two images of a split would get the same name, or label maps cannot hold as many classes.
    """
    if target == 'masks' and len(data.classes) >= IGNORED:
        raise ValueError(f'{len(data.classes)} classes do not fit into 8-bit label maps, which have {IGNORED} with '
                         'the background.')
    named: dict[tuple[str, str], Sample] = {}
    for sample in data.samples:
        other = named.setdefault((sample.split, sample.path.stem), sample)
        if other is not sample:
            raise ValueError(f'{other.path} and {sample.path} would get one name in one split: rename one.')


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
    categories = [dict(id=i, name=name) for i, name in enumerate(data.classes, 1)]
    for part in {sample.split for sample in data.samples}:
        images, annotations = [], []
        for i, sample in enumerate((sample for sample in data.samples if sample.split == part), 1):
            images.append(dict(id=i, file_name=sample.path.name, width=sample.width, height=sample.height))
            annotations += [dict(one, id=len(annotations) + number, image_id=i, category_id=one['category_id'] + 1)
                            for number, one in enumerate(sample.objects, 1)]
        content = dict(images=images, annotations=annotations, categories=categories)
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
            mask = coco_mask.decode(rle(one, sample)).astype(bool)
            label_map[mask] = one['category_id']
        (dst / 'labels' / sample.split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(label_map).save(dst / 'labels' / sample.split / f'{sample.path.stem}.png')
    (dst / 'classes.txt').write_text(''.join(f'{name}\n' for name in data.classes), encoding='utf-8')


def _write_yolo(data: Data, dst: Path) -> None:
    splits = {sample.split: f'images/{sample.split}' for sample in data.samples}
    write_atomically(dst / 'data.yaml', yaml.safe_dump(
        dict(splits, names=dict(enumerate(data.classes))), sort_keys=False, allow_unicode=True))
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
    x, y, w, h = one['bbox']
    mask = coco_mask.decode(rle(one, sample)).astype(bool)[None] if one.get('segmentation') else None
    return sv.Detections(np.array([[x, y, x + w, y + h]]), mask, class_id=np.array([one['category_id']]))


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
