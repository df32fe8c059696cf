"""Lists of images with labels: class folders, list files, or a folder of images without labels."""
import os
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import numpy as np
from mmengine import fileio
from timm.data.readers.img_extensions import get_img_extensions
from timm.data.readers.reader import Reader


class FileReader(Reader):
    """Files and labels in three arrays, so that forked workers share the memory of a long list.

    Args:
        root: folder that the paths are relative to.
        paths: of the images.
        labels: class index of each image.
        classes: names by index; empty if unknown.
        backend_args: of MMEngine's file backend; None: files.
    """

    def __init__(self, root: str, paths: list[str], labels: list[int], classes: list[str],
                 backend_args: dict[str, Any] | None = None):
        super().__init__()
        self.root = root
        self.classes = classes
        self.backend_args = backend_args
        encoded = [os.fsencode(path) for path in paths]
        self._bytes = np.frombuffer(b''.join(encoded), dtype=np.uint8)
        self._ends = np.cumsum([len(path) for path in encoded], dtype=np.int64)
        self.labels = np.array(labels, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path = self._filename(index, absolute=True)
        file = BytesIO(fileio.get(path, self.backend_args)) if self.backend_args else open(path, 'rb')
        return file, int(self.labels[index])

    def _filename(self, index: int, basename: bool = False, absolute: bool = False) -> str:
        start = self._ends[index - 1] if index else 0
        path = os.fsdecode(self._bytes[start:self._ends[index]].tobytes())
        if basename:
            return os.path.basename(path)
        return os.path.join(self.root, path) if absolute else path


def read_class_folders(root: str, class_names: Sequence[str] | None = None) -> FileReader:
    """Every image below ``root``; the folders directly in ``root``, sorted, are the classes.

    Args:
        class_names: all classes by number, of which ``root`` may have some folders only; None: those that it has.

    Raises:
        FileNotFoundError: no such folder, or no image in it.
        ValueError: an empty folder, or one that is not in ``class_names``.
    """
    if not os.path.isdir(root):
        raise FileNotFoundError(f'{root!r} is not a folder. Expected is one folder per class in it; set the '
                                'data root with --data-root DIR, or data_root and split in the config.')
    found = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    classes = list(class_names) if class_names else found
    unknown = sorted(set(found).difference(classes))
    if unknown:
        raise ValueError(f'{len(unknown)} class folders in {root!r} are none of the {len(classes)} class_names: '
                         f'{some(unknown)}. Point the data root elsewhere, or correct class_names.')
    numbers = {name: label for label, name in enumerate(classes)}
    paths, labels, empty = [], [], []
    for name in found:
        inside = sorted(_images(os.path.join(root, name), root))
        paths += inside
        labels += [numbers[name]] * len(inside)
        if not inside:
            empty.append(name)
    if not paths:
        raise FileNotFoundError(f'{root!r} holds no image in class folders ({len(found)} folders). '
                                f'Expected is {os.path.join(root, "<class>", "<name>.JPEG")}; allowed are '
                                f'{", ".join(get_img_extensions())}.')
    if empty:
        raise ValueError(f'{len(empty)} class folders in {root!r} hold no image: {some(empty)}. Remove them '
                         '(they count as classes), or fill them.')
    return FileReader(root, paths, labels, classes)


def _images(folder: str, root: str) -> Iterator[str]:
    """Every image below ``folder``, relative to ``root``."""
    extensions = tuple(get_img_extensions())
    for inside, _, files in os.walk(folder, followlinks=True):
        yield from (os.path.relpath(os.path.join(inside, file), root) for file in files
                    if file.lower().endswith(extensions))


def read_unlabelled(root: str) -> FileReader:
    """Every image below ``root``, at any depth, with label -1.

    Raises:
        FileNotFoundError: no such folder, or no image in it.
    """
    if not os.path.isdir(root):
        raise FileNotFoundError(f'{root!r} is not a folder of images; set the data root with --data-root DIR, or '
                                'data_root and split in the config.')
    paths = sorted(_images(root, root))
    if not paths:
        raise FileNotFoundError(f'{root!r} holds no image, at any depth; allowed are '
                                f'{", ".join(get_img_extensions())}. Set data_root and split to a folder that does.')
    return FileReader(root, paths, [-1] * len(paths), [])


def read_list(ann_file: str, root: str, backend_args: dict[str, Any] | None = None) -> FileReader:
    """Images named by a text file with a line ``path label`` each; paths are relative to ``root``.

    Raises:
        FileNotFoundError: no such file, or images that it names are missing (not checked with ``backend_args``).
        ValueError: a line is malformed, or there is none.
    """
    if not os.path.isfile(ann_file):
        raise FileNotFoundError(f'list file {ann_file!r} does not exist; set ann_file (relative to '
                                'data_root) in the config, or the data root with --data-root DIR.')
    paths, labels = [], []
    with open(ann_file, encoding='utf-8') as file:
        for number, line in enumerate(file, start=1):
            path, _, label = line.strip().rpartition(' ')
            if not line.strip():
                continue
            if not path or not label.isdigit():
                raise ValueError(f'list file {ann_file!r}, line {number}: {line.strip()!r} is not a path, a '
                                 'space and a class index (0 or more).')
            paths.append(path.rstrip())
            labels.append(int(label))
    if not paths:
        raise ValueError(f'list file {ann_file!r} names no image.')
    if backend_args:
        return FileReader(root, paths, labels, [], backend_args)
    # One listing per folder instead of one look-up per file: network file systems are slow at those.
    found: dict[str, set] = {}
    missing = []
    for path in paths:
        folder, name = os.path.split(os.path.join(root, path))
        if folder not in found:
            found[folder] = set(os.listdir(folder)) if os.path.isdir(folder) else set()
        if name not in found[folder]:
            missing.append(path)
    if missing:
        raise FileNotFoundError(f'list file {ann_file!r} names {len(missing)} images (of {len(paths)}) that '
                                f'are not in {root!r}: {some(missing)}. Check data_root, split and the '
                                'list.')
    return FileReader(root, paths, labels, [])


def some(names: list[str]) -> str:
    return ', '.join(map(repr, names[:5])) + (', ...' if len(names) > 5 else '')
