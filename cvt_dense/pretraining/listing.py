"""Lists of images with labels: class folders, list files, or images without labels.

Each image is a dict with ``img_path``, the file that holds it, and ``label``.
"""
import os
from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from typing import Any, BinaryIO

from mmengine import fileio
from mmengine.logging import print_log

from ..errors import UserError
from ..images import SUFFIXES, files_below, find_missing, is_image

Image = dict[str, Any]


def read_classes(classes: Sequence[str] | str | None) -> Sequence[str] | None:
    """Return class names, where they may be given as a file of them.

    Raises:
        UserError: there is no such file.
    """
    if isinstance(classes, str):
        if not os.path.isfile(classes):
            raise UserError(f'metainfo.classes={classes!r} is no file; give names, or a file with one a line.')
        classes = fileio.list_from_file(classes)
    return classes


def find_classes(root: str) -> list[str]:
    """Return the names of the classes in a folder of class folders by number."""
    return sorted(entry.name for entry in os.scandir(root) if entry.is_dir() and not entry.name.startswith('.'))


def list_images(root: str, classes: Sequence[str] | None = None,
                labelled: bool = True) -> tuple[list[Image], list[str]]:
    """List the images of class folders, the folders directly below ``root``.

    Names of classes are numbered in sorted order, images are sorted by class and path. Hidden files and folders
    (``.ipynb_checkpoints``, ``._a.png``) are left out, and a folder that symbolic links lead to several times is read
    once. The log counts the files with other suffixes than those of images, which are left out too.

    Args:
        root: the folder.
        classes: all classes by number, of which ``root`` may have only some; None: those that it has.
        labelled: False lists the images at any depth, with label -1.

    Returns:
        The images, each with its ``label``, and the names of the classes by number.

    Raises:
        FileNotFoundError: ``root`` does not exist, or holds no image.
        ValueError: a class has no image, or is not one of ``classes``.
    """
    if not os.path.isdir(root):
        raise FileNotFoundError(f'The folder {root!r} does not exist. Give the right data root with --data-root DIR, '
                                'or set data_root and split in the config.')
    by_class: dict[str, list[Image]] = {}
    others: Counter[str] = Counter()  # files that are no images, by their suffix
    for name in find_classes(root) if labelled else ['']:
        paths = sorted(files_below(os.path.join(root, name)))
        by_class[name] = [dict(img_path=path) for path in paths if is_image(path)]  # none is an error below
        others.update(os.path.splitext(path)[1].lower() for path in paths if not is_image(path))
    if others:
        print_log(f'{root!r}: {others.total()} files without the suffix of an image were left out: '
                  f'{", ".join(f"{n} *{suffix}" for suffix, n in others.most_common(5))}.', logger='current')
    if not any(by_class.values()):
        raise FileNotFoundError(f'{root!r} holds no image{" in class folders" if labelled else ""}. The allowed '
                                f'suffixes are {", ".join(SUFFIXES)}.')
    empty = [name for name in by_class if not by_class[name]]
    if empty:
        raise ValueError(f'{len(empty)} class folders in {root!r} hold no image: {_join(empty)}. Remove or fill them.')
    if not labelled:
        return [dict(image, label=-1) for image in by_class['']], []
    names = list(classes or by_class)
    unknown = sorted(by_class.keys() - set(names))
    if unknown:
        raise ValueError(f'{root!r} holds {len(unknown)} classes that are none of the {len(names)} in '
                         f'metainfo.classes: {_join(unknown)}. The allowed ones are {_join(names)}.')
    numbers = {name: number for number, name in enumerate(names)}
    return [dict(image, label=numbers[name]) for name, images in by_class.items() for image in images], names


def list_from_file(ann_file: str, root: str, check_files: bool = True) -> list[Image]:
    """List the images that a text file names in lines ``path label``.

    Args:
        ann_file: the text file.
        root: folder that its paths are relative to.
        check_files: raise an error if images do not exist.

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
    missing = find_missing(image['img_path'] for image in images) if check_files else []
    if missing:
        raise FileNotFoundError(f'{len(missing)} of the {len(images)} images in {ann_file!r} do not exist: '
                                f'{_join(missing)}. Correct the list, data_root or split.')
    return images


def open_file(image: Image, backend_args: dict[str, Any] | None = None) -> BinaryIO:
    """Return the bytes of a listed image, read through one of MMEngine's file backends."""
    return BytesIO(fileio.get(image['img_path'], backend_args))


def _join(names: Sequence[str]) -> str:
    return ', '.join(map(repr, names[:5])) + (', ...' if len(names) > 5 else '')
