"""Compare images and label maps with what their readers make of them, before a run."""
import random
from collections import defaultdict
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
from mmcv.transforms import LoadAnnotations
from mmengine.dataset import BaseDataset
from mmengine.logging import print_log
from mmengine.registry import METRICS
from PIL import Image

from ...config import class_of, dicts, is_remote
from ...engine.data_sets import find_reader, find_transform, leaves
from ...errors import UserError
from ...images import (
    ADVICE,
    Header,
    check_loaded,
    find_missing,
    images_below,
    load,
    read_header,
    reads_raw,
    shape_as_read,
    turns,
)
from ...pretraining import ImageDataset
from ...scopes import kinds
from ..built import Built
from .batches import check_pipeline

MAX_HEADERS = 100_000  # images of a data set; their headers take some ten seconds
MAX_LABEL_MAPS = 2000  # label maps that are decoded before a run, which takes some seconds
SAMPLE = 32  # images of one kind that are decoded


def check_files(built: Built) -> None:
    """Check that the images and label maps of the data sets exist, and that their readers give what they hold.

    Files of other backends than the local one and inside tar files are not looked for.

    Raises:
        UserError: files are missing, or a check below refuses them; the message names the data loader.
    """
    for stage, dataset in ((stage, leaf) for stage, whole in built.loaders.items() for leaf in leaves(whole.dataset)):
        loader = f'{stage}_dataloader'
        if isinstance(dataset, BaseDataset) and not any(map(is_remote, dicts(built.cfg[loader].dataset))):
            try:
                _check_data_set(dataset, built, stage)
            except UserError as error:
                raise UserError(f'{loader}: {error}') from error


def _check_data_set(dataset: BaseDataset, built: Built, stage: str) -> None:
    classifies = isinstance(dataset, ImageDataset)  # it has checked that its files exist
    numbers = range(len(dataset))
    infos = map(dataset.get_data_info, choose(numbers, MAX_HEADERS) if classifies else numbers)
    # Millions of objects that stay in memory would keep Python's garbage collector busy for many seconds.
    images = {info['img_path']: {key: value for key, value in info.items() if key != 'instances'} for info in infos
              if isinstance(info.get('img_path'), str) and 'offset' not in info}
    maps = {info['seg_map_path']: info for info in images.values() if isinstance(info.get('seg_map_path'), str)}
    for paths in () if classifies else (images, maps):
        missing = find_missing(paths)
        if missing:
            raise UserError(f'{len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. Correct '
                            'data_prefix or seg_map_suffix, or complete the data.')
    reader = find_reader(dataset)
    if not images or reader is None and not classifies:
        return
    images = {path: images[path] for path in choose(images, MAX_HEADERS)}
    share = ((built.cfg.get('default_hooks') or {}).get('unreadable_images') or {}).get('max_share', 0.05)
    headers = check_images(images, reader, share)
    if not classifies:
        check_pipeline(dataset, images, headers, built, stage)
    if getattr(dataset, 'img_suffix', None) and not dataset.ann_file:
        others = {path for path in images_below(dataset.data_prefix['img_path'])
                  if not path.endswith(dataset.img_suffix)} - maps.keys()
        _log(others, f'images are left out, since their names do not end with img_suffix={dataset.img_suffix!r}')
    if maps and hasattr(built.model, 'decode_head') and find_transform(dataset, LoadAnnotations):
        chosen = {path: maps[path] for path in choose(maps, MAX_LABEL_MAPS)}
        heads = {head.ignore_index for head in built.model.modules() if hasattr(head, 'ignore_index')
                 and hasattr(head, 'num_classes')}
        metrics = {node.get('ignore_index', 255) for node in dicts(built.cfg.get(f'{stage}_evaluator'))
                   if 'type' in node and issubclass(class_of(node, built.cfg, METRICS) or object, kinds('IOU_METRICS'))}
        check_label_maps(chosen, headers, dataset, 2 if stage == 'train' else 1, heads | metrics)


def _log(names: Collection[str], text: str) -> None:
    if names:
        print_log(f'{len(names)} {text}, such as {min(names)!r}.', logger='current', level=30)


def choose(values: Iterable[Any], number: int) -> list[Any]:
    """Return at most ``number`` of ``values``, evenly spread."""
    values = list(values)
    return values[::max(1, -(-len(values) // number))]


# -- images ----------------------------------------------------------------------------------------


def check_images(infos: dict[str, dict[str, Any]], reader: Any, max_share: float) -> dict[str, Header]:
    """Compare a sample of each kind of image file with Pillow's decoding, and all sizes with the annotations.

    Args:
        infos: a data set's entry for each image file, without the objects.
        reader: see :func:`cvt_dense.images.load`.
        max_share: fraction of the images that may be unreadable.

    Returns:
        The headers.

    Raises:
        UserError: too many images cannot be read, or what the reader gives of them is not what they hold.
    """
    def find_header(path: str) -> Header | None:
        with suppress(Exception):  # damaged files raise anything from SyntaxError to struct.error
            return read_header(path)

    with ThreadPoolExecutor() as pool:  # network disks answer many at once
        headers = {path: header for path, header in zip(infos, pool.map(find_header, infos)) if header}
    kinds: dict[tuple, list[str]] = defaultdict(list)
    for path in infos:
        header = headers.get(path)
        kinds[(header.format, header.dtype, header.shape[2:]) if header else ()].append(path)
    unreadable: dict[str, str] = {}
    for kind, paths in kinds.items():
        failed = load_sample(paths, infos, reader, headers.get(paths[0]))
        # mmcv reads formats that Pillow does not: it reads all, where it reads a sample.
        unreadable |= failed if kind or not failed else dict.fromkeys(paths, min(failed.values()))
    if len(unreadable) > max_share * len(infos) or len(unreadable) == len(infos):
        path, reason = min(unreadable.items())
        raise UserError(f'{len(unreadable)} of {len(infos)} images cannot be read, such as {path!r} ({reason}). '
                        'Repair, convert or remove them, or raise default_hooks.unreadable_images.max_share.')
    for path, header in headers.items():
        shape, noted = shape_as_read(header, reader), (infos[path].get('height'), infos[path].get('width'))
        if None not in noted and noted != shape:
            raise UserError(f'the annotation file gives {path!r} the height and width {noted}, but upright (EXIF '
                            f'applied) it has {shape}.')
    # A quarter turn shows itself in the sizes, unless they are square.
    turned = [path for path, header in headers.items() if reader is not None and turns(reader)
              and header.orientation > 1 and (header.orientation < 5 or header.shape[0] == header.shape[1])]
    _log(turned, "images are rotated by EXIF (not with color_type='color_ignore_orientation'); annotations must fit")
    return headers


def load_sample(paths: list[str], infos: dict[str, dict[str, Any]], reader: Any, header: Header | None
                ) -> dict[str, str]:
    """Read some files of one kind, and return those that cannot be read, with the reason.

    Args:
        paths: files of one kind.
        infos: see :func:`check_images`.
        reader: see :func:`cvt_dense.images.load`.
        header: header of one of them; None: they have none that is known.

    Raises:
        UserError: the reader gives something else than the files hold, or next to nothing of 16 bits.
    """
    unreadable, highest = {}, []
    for path in random.Random(0).sample(paths, min(len(paths), SAMPLE)):
        try:
            image = load(path, reader, **infos[path])
            check_loaded(path, image, reader)
            highest.append(image.max())
        except UserError as error:
            raise UserError(f'{len(paths)} of {len(infos)} images are of one kind, and {error}') from error
        except Exception as error:  # each decoder raises its own
            unreadable[path] = f'{type(error).__name__}: {error}' + (f', a file of {header.dtype}' if header else '')
    if header and not reads_raw(reader) and (header.wide or header.shape[2] not in (1, 3)):
        if header.wide and max(highest, default=255) < (128 if len(highest) > 1 else 16):  # a single one may be dark
            raise UserError(f'{len(paths)} images, such as {paths[0]!r}, hold {header.dtype}, whose upper 8 bits are '
                            f'at most {max(highest)}. {ADVICE}')
        _log(paths, f'images hold {header.shape[2]} channels of {header.dtype}; their colours are read as 8 bits')
    return unreadable


# -- label maps ------------------------------------------------------------------------------------


def check_label_maps(infos: dict[str, dict[str, Any]], images: dict[str, Header], dataset: Any, least: int,
                     ignored: set[int]) -> None:
    """Check the files of label maps, and the values that MMSegmentation reads of them.

    Args:
        infos: the data set's entry for each label map that is checked.
        images: headers of images.
        dataset: an mmseg data set.
        least: number of classes that they must hold.
        ignored: what the heads and metrics have as ``ignore_index``, which are allowed if they are the same.

    Raises:
        UserError: a map cannot be read, has another size than its image or several channels, or holds other values; or
            all hold fewer classes than ``least``.
    """
    names = dataset.metainfo['classes']
    ignored_by_all = ignored if len(ignored) == 1 else set()
    classes = {*range(len(names))} - ignored_by_all
    reader, loader = find_reader(dataset), find_transform(dataset, LoadAnnotations)

    def check(path: str) -> set[int]:
        image = images.get(infos[path]['img_path'])
        values = read_label_map(infos[path], loader, image and shape_as_read(image, reader))
        wrong = values - classes - ignored_by_all
        if wrong:
            raise UserError(
                f'the label map {path!r} holds the values {sorted(wrong)[:10]}; allowed are 0 to {len(names) - 1} '
                f'(after reduce_zero_label) and the ignore_index of all heads and metrics, {sorted(ignored)}.')
        return values

    with ThreadPoolExecutor() as pool:
        values = set().union(*pool.map(check, infos))
    _log([str(names[value]) for value in classes - values],
         f'of {len(names)} classes are in none of {len(infos)} label maps')
    if len(values & classes) < min(len(classes), least):
        raise UserError(f'{len(infos)} label maps, such as {min(infos)!r}, hold {sorted(values)} alone, and '
                        f'{sorted(ignored)} is ignored. In masks of 0 and 255, write 1 for 255.')


def read_label_map(info: dict[str, Any], loader: Any, shape: tuple[int, int] | None) -> set[int]:
    """Return the values of a label map as MMSegmentation reads them.

    Args:
        info: the data set's entry.
        loader: transform that loads it.
        shape: height and width of the image, if known.

    Raises:
        UserError: the file cannot be read, cannot hold class numbers, has another size, or other values are read.
    """
    path = info['seg_map_path']
    try:
        header = read_header(path)
        values = np.unique(loader(dict(info))['gt_seg_map'])
        stored = np.unique(Image.open(path)) if header.wide else values
    except Exception as error:  # a truncated file, for example
        raise UserError(f'the label map {path!r} cannot be read ({error}).') from error
    if header.shape[2] > 1 or header.format in ('JPEG', 'MPO') or header.dtype in ('uint2', 'uint4'):
        raise UserError(f'the label map {path!r} is a {header.format} file with {header.shape[2]} channels of '
                        f'{header.dtype}; save class numbers as an 8-bit grey or palette PNG with one channel.')
    if shape and header.shape[:2] != shape:
        raise UserError(f'the label map {path!r} has the shape {header.shape[:2]}, but its image {shape}, upright.')
    lost = stored[stored != stored.astype(np.uint8)]
    if lost.size:
        raise UserError(f'the label map {path!r} holds {lost[:10].tolist()}, and MMSegmentation reads whole numbers to '
                        '255. Number the classes from 0, below 256.')
    return {*values.tolist()}
