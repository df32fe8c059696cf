"""Lists of images with labels: class folders, tar files or list files.

Each image is a dict with ``img_path``, the file that holds it. An image inside a tar file also has its ``name``
(tar file and member), and the ``offset`` and ``size`` of its bytes: they are read without the tar's own index, so
that worker processes share no open file and nothing is written beside the data.
"""
import os
import tarfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import Any, BinaryIO

from mmengine import fileio
from mmengine.logging import print_log

from ..annotations.names import are_splits, is_no_class, is_rubbish
from ..errors import listed
from ..images import SUFFIXES, files_below, find_missing, is_image

Image = dict[str, Any]


def find_classes(root: str) -> list[str]:
    """Return the names of the classes in a folder of class folders or of tar files, or in a tar file, by number."""
    tars = _tar_files(root)
    return _class_names({name for name, _ in _images_in_tars(tars)}) if tars else _folders(root)


def list_images(root: str, classes: Sequence[str] | None = None) -> tuple[list[Image], list[str]]:
    """List the images of class folders, of a tar file, or of a folder of tar files.

    The class is the folder directly below ``root``; in a tar file it is the innermost folder, or the name of
    the tar file if it has none; in a WebDataset shard it is the number in ``KEY.cls`` beside ``KEY.jpg``. Classes are
    numbered in sorted order, images are sorted by class and path. Hidden files and folders (``.ipynb_checkpoints``,
    ``._a.png``) are left out, and a folder that symbolic links lead to several times is read once. The log counts
    images beside the folders and files with other suffixes than those of images, which are left out too.

    Args:
        root: a folder, or a file whose name ends with '.tar'.
        classes: all classes by number; ``root`` may have some of them only. None: those that it has.

    Returns:
        The images, each with its ``label``, and the names of the classes by number.

    Raises:
        FileNotFoundError: ``root`` does not exist, or holds no image.
        ValueError: a class has no image, or is not one of ``classes``.
    """
    if not os.path.exists(root):
        raise FileNotFoundError(f'{root!r} does not exist. Give the right data root with --data-root DIR, or set '
                                'data_root and split in the config.')
    by_class: dict[str | int, list[Image]] = defaultdict(list)
    tars = _tar_files(root)
    for name, image in _images_in_tars(tars):
        by_class[name].append(image)
    if not tars:
        left_out = [name for name in os.listdir(root) if is_image(name) and not is_rubbish(name)]
        for name in _folders(root):
            paths = [] if is_rubbish(name) else list(files_below(os.path.join(root, name)))  # __MACOSX is refused below
            by_class[name] = [dict(img_path=path) for path in paths if is_image(path)]  # none is an error below
            left_out += [path for path in paths if not is_image(path)]
        if left_out:
            print_log(f'{root!r}: {len(left_out)} files were left out, which lie beside the class folders or have no '
                      f'suffix of an image: {listed(left_out)}.', logger='current', level=30)
    if are_splits(by_class):
        raise ValueError(f'{root!r} holds parts of a data set and not classes: {listed(sorted(by_class))}. Set split '
                         'to one of them.')
    if not any(by_class.values()):
        raise FileNotFoundError(f'{root!r} holds no image in class folders. The allowed suffixes are '
                                f'{", ".join(SUFFIXES)}.')
    empty = [name for name in by_class if not by_class[name]]
    if empty:
        raise ValueError(f'{len(empty)} class folders in {root!r} hold no image: {listed(empty)}. Remove or fill them.')
    void = [] if classes else [*filter(is_no_class, by_class)]
    if void:
        raise ValueError(f'{root!r} has class folders whose names say that they are no class: {listed(void)}. Remove '
                         'them, or name all classes in metainfo.classes.')
    names = list(classes or _class_names(by_class))
    numbers: dict[str | int, int] = {key: number for number, name in enumerate(names) for key in (name, number)}
    unknown = sorted(by_class.keys() - numbers)
    if unknown:
        raise ValueError(f'{root!r} holds {len(unknown)} classes that are none of the {len(names)} in '
                         f'metainfo.classes: {listed(unknown)}. The allowed ones are {listed(names)}.')
    return [dict(image, label=numbers[name]) for name in sorted(by_class)
            for image in sorted(by_class[name], key=image_name)], names


def list_from_file(ann_file: str, root: str) -> list[Image]:
    """List the images that a text file names in lines ``path label``.

    Args:
        ann_file: the text file.
        root: folder that its paths are relative to.

    Returns:
        The images, each with its ``label``.

    Raises:
        FileNotFoundError: the text file, or images that it names, do not exist.
        ValueError: a line is malformed, or there is none.
    """
    images = []
    for number, line in enumerate(fileio.list_from_file(ann_file, encoding='utf-8-sig'), 1):
        path, _, label = line.strip().rpartition(' ')
        if not line.strip():
            continue
        if not path or not label.isdigit():
            raise ValueError(f'{ann_file!r}, line {number}: {line!r} is not a path, a space and a class index from 0.')
        images.append(dict(img_path=os.path.join(root, path.rstrip()), label=int(label)))
    if not images:
        raise ValueError(f'{ann_file!r} names no image. Write a line "path label" for each.')
    missing = find_missing(image['img_path'] for image in images)
    if missing:
        raise FileNotFoundError(f'{len(missing)} of the {len(images)} images in {ann_file!r} do not exist: '
                                f'{listed(missing)}. Correct the list, data_root or split.')
    return images


def open_file(image: Image, backend_args: dict[str, Any] | None = None) -> BinaryIO:
    """Return the bytes of a listed image, read through one of MMEngine's file backends."""
    if 'offset' not in image:
        return BytesIO(fileio.get(image['img_path'], backend_args))
    with open(image['img_path'], 'rb') as file:
        file.seek(image['offset'])
        return BytesIO(file.read(image['size']))


def image_name(image: Image) -> str:
    """Return the path of a listed image; inside a tar file it is that of the tar file, then of the member."""
    return image.get('name', image['img_path'])


def _folders(root: str) -> list[str]:
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith('.'))


def _tar_files(root: str) -> list[str]:
    if root.endswith('.tar') and os.path.isfile(root):
        return [root]
    names = [] if _folders(root) else sorted(os.listdir(root))
    return [os.path.join(root, name) for name in names if name.endswith('.tar') and not name.startswith('.')]


def _class_names(classes: Iterable[str | int]) -> list[str]:
    """Return the names of classes by number; classes that have only a number are named by it."""
    numbers = {name for name in classes if isinstance(name, int)}
    if numbers and not numbers >= set(classes):
        raise ValueError('Some images in tar files have a class number in KEY.cls, others have none: write a KEY.cls '
                         'for every KEY.jpg, or for none.')
    return [str(number) for number in range(max(numbers) + 1)] if numbers else sorted(map(str, classes))


def _images_in_tars(paths: list[str]) -> Iterator[tuple[str | int, Image]]:
    """Yield (class, image) of each image in tar files; of members of one name the last counts, as for ``tar``.

    The class is a number where a file has it in ``KEY.cls`` beside ``KEY.jpg``.

    Raises:
        ValueError: a file is damaged, or has a link instead of an image, a ``KEY.cls`` without a number or without an
            image, or other files beside its images, which have neither a folder nor a ``KEY.cls``.
    """
    for path in paths:
        images: dict[str, tuple[str, Image]] = {}
        numbers: dict[str, int] = {}  # labels in KEY.cls, by path without the suffix
        others: set[str] = set()  # paths without the suffix of other files outside of folders
        try:
            with tarfile.open(path, mode='r:') as tar:
                for member in tar:
                    inside = os.path.normpath(member.name)
                    if member.isdir() or any(map(is_rubbish, inside.split('/'))):
                        continue
                    stem, suffix = os.path.splitext(os.path.join(path[:-4], inside))
                    if suffix == '.cls':
                        numbers[stem] = int(tar.extractfile(member).read())
                    elif not is_image(inside) and '/' not in inside:
                        others.add(stem)
                    if is_image(inside) and not member.isreg():
                        raise ValueError(f'{inside!r} is a link inside it: pack again by tar --dereference '
                                         '--hard-dereference.')
                    if is_image(inside):
                        images[stem + suffix] = os.path.basename(os.path.dirname(stem)), dict(
                            img_path=path, name=os.path.join(path, inside), offset=member.offset_data, size=member.size)
                _check_end(path, tar.offset)
                stems = {os.path.splitext(name)[0] for name in images}
                if alone := sorted(numbers.keys() - stems):
                    raise ValueError(f'{len(alone)} KEY.cls have no image of that KEY: {listed(alone)}')
                if unlabelled := sorted(others & stems - numbers.keys()):
                    raise ValueError(f'{len(unlabelled)} images have another file beside them, but no KEY.cls with the '
                                     f'number of their class: {listed(unlabelled)}')
        except (tarfile.TarError, ValueError) as error:
            raise ValueError(f'{path!r} cannot be read as a complete, uncompressed tar file: {error}') from error
        for path_inside, (folder, image) in images.items():
            yield numbers.get(os.path.splitext(path_inside)[0], folder), image


def _check_end(path: str, offset: int) -> None:
    """Check that a tar file ends with zeros from ``offset`` on, where ``tarfile`` has stopped without an error."""
    with open(path, 'rb') as file:
        file.seek(offset)
        rest = file.read(2**20)
        if not rest or rest.strip(b'\0') or file.read(1):
            raise ValueError(f'it is damaged after {offset} bytes, so images would be missing. Make it again.')
