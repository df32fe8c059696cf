"""Look at the header of every image file and label map, and at the values of a sample of them."""
import random
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.logging import print_log
from PIL import Image

from ...config.settings import dicts, type_name
from ...engine.samplers import leaves
from ...errors import UserError
from ...images import Header, explain_loss, find_missing, images_below, open_image, read_header, turns
from .batches import check_pipeline

MAX_HEADERS = 100_000  # of a data set, which take some ten seconds
MAX_LABEL_MAPS = 2000  # label maps that are read before a run, which takes some seconds
SAMPLE = 32  # images of one kind that are decoded


def check_files(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that the images and label maps of the data sets exist, and that their readers give what they hold.

    Files behind ``backend_args`` and inside tar files are not looked for.

    Raises:
        UserError: files are missing, or a check below refuses them; the message names the data loader.
    """
    for stage, dataset in ((stage, leaf) for stage, whole in datasets.items() for leaf in leaves(whole)):
        where = f'{stage}_dataloader'
        if not hasattr(dataset, 'get_data_info') or any(
                node.get('backend_args') for node in dicts(cfg[where].dataset)):
            continue
        try:
            _check_data_set(dataset, cfg, stage)
        except UserError as error:
            raise UserError(f'{where}: {error}') from error


def _check_data_set(dataset: Any, cfg: Config, stage: str) -> None:
    listed = type(dataset).__name__ == 'ImageDataset'  # it has checked that its files exist
    infos = map(dataset.get_data_info, range(0, len(dataset), -(-len(dataset) // MAX_HEADERS) if listed else 1))
    images = {info['img_path']: info for info in infos
              if isinstance(info.get('img_path'), str) and 'offset' not in info}
    maps = {info['seg_map_path']: path for path, info in images.items() if isinstance(info.get('seg_map_path'), str)}
    for paths in () if listed else (images, maps):
        missing = find_missing(paths)
        if missing:
            raise UserError(f'{len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. Correct '
                            'data_prefix or seg_map_suffix, or complete the data.')
    steps = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
    reader = next((step for step in steps if type(step).__name__.startswith('LoadImage')), None)
    if not images or reader is None and not listed:
        return
    headers = check_images(images, reader, cfg, cfg[f'{stage}_dataloader'].dataset)
    if not listed:
        check_pipeline(dataset.pipeline, images, headers, cfg, stage)
    check_sizes(images, headers, reader)
    if getattr(dataset, 'img_suffix', None) and not dataset.ann_file:
        others = {path for path in images_below(dataset.data_prefix['img_path'])
                  if not path.endswith(dataset.img_suffix)} - maps.keys()
        _log(f'{len(others)} images, such as {min(others, default="")!r}, are left out: their names do not end with '
             f'img_suffix={dataset.img_suffix!r}.' * bool(others))
    if maps and 'decode_head' in cfg.model:
        check_label_map_files(maps, headers, reader)
        check_label_maps(list(maps), dataset, cfg.model.decode_head, 2 if stage == 'train' else 1)


def _log(text: str) -> None:
    if text:
        print_log(text, logger='current', level=30)


def spread(paths: Sequence[Any], number: int) -> Sequence[Any]:
    """Return at most ``number`` of ``paths``, evenly spread."""
    return paths if len(paths) <= number else [paths[i * len(paths) // number] for i in range(number)]


def read_headers(paths: Sequence[str]) -> tuple[dict[str, Header], dict[str, str]]:
    """Return the headers of at most :data:`MAX_HEADERS` files, and the reasons of those that cannot be read."""
    paths, unreadable = spread(paths, MAX_HEADERS), {}

    def read(path: str) -> Header | None:
        try:
            return read_header(path)
        except Exception as error:  # damaged files raise anything from SyntaxError to struct.error
            unreadable[path] = f'{type(error).__name__}: {error}'

    with ThreadPoolExecutor() as pool:  # network disks answer many at once
        return {path: header for path, header in zip(paths, pool.map(read, paths)) if header}, unreadable


def check_images(infos: dict[str, dict[str, Any]], reader: Any, cfg: Config, dataset: dict[str, Any]
                 ) -> dict[str, Header]:
    """Check the headers of images, and the values of a sample of each kind.

    Args:
        infos: a data set's entry for each image file.
        reader: see :func:`cvt_dense.images.explain_loss`.
        cfg: whole config.
        dataset: config of the data set.

    Returns:
        The headers.

    Raises:
        UserError: too many images cannot be read, or what the reader gives of them is not what they hold.
    """
    headers, unreadable = read_headers(list(infos))
    number, kinds = len(headers) + len(unreadable), defaultdict(list)
    steps = [node for node in dicts(dataset) if type_name(node) == 'Normalize']
    means = [node.get('mean') for node in (cfg.model.get('data_preprocessor') or {}, *steps)]
    for path, header in headers.items():
        kinds[header.format, header.dtype, header.channels, header.layout].append(path)
    for same in kinds.values():
        sample = random.Random(0).sample(same, min(len(same), SAMPLE))
        reason, note = explain_loss(headers[sample[0]], reader, *sample)
        if reason:
            raise UserError(f'{len(same)} of {number} images, such as {min(same)!r}: {reason}.')
        _log(f'{len(same)} of {number} images, such as {min(same)!r}: {note}.' * bool(note))
        for path in sample:
            array = load(infos[path], reader)
            if isinstance(array, str):
                unreadable[path] = array
            else:
                check_array(path, array, seen_size(headers[path], reader), means)
    unknown = {path for path in unreadable if path not in headers and reader is not None}
    # mmcv reads formats that Pillow does not: all are read, where it reads a sample.
    if all(isinstance(load(infos[path], reader), np.ndarray) for path in sorted(unknown)[:SAMPLE]):
        unreadable = {path: reason for path, reason in unreadable.items() if path not in unknown}
    share = ((cfg.get('default_hooks') or {}).get('unreadable_images') or {}).get('max_share', 0.05)
    if len(unreadable) > share * number or len(unreadable) == number:
        path, reason = min(unreadable.items())
        raise UserError(f'{len(unreadable)} of {number} images cannot be read, such as {path!r} ({reason}). Repair or '
                        'remove them, or raise default_hooks.unreadable_images.max_share.')
    return headers


def load(info: dict[str, Any], reader: Any) -> np.ndarray | str:
    """Return an image as its reader gives it, or the reason why it gives none."""
    try:
        return np.asarray(open_image(info['img_path'])) if reader is None else reader(dict(info))['img']
    except Exception as error:  # each decoder raises its own
        return f'{type(error).__name__}: {error}'


def seen_size(header: Header | None, reader: Any) -> tuple[int, int] | None:
    """Return the width and height of an image as its reader gives it, None if the header does not tell."""
    if header is None or header.layout == 'pages':
        return None
    return header.upright if turns(reader) else header.size


def check_array(path: str, array: np.ndarray, size: tuple[int, int] | None, means: Sequence[Any]) -> None:
    """Check what a reader gives of an image.

    Raises:
        UserError: the array has another size than the header, another number of channels than a ``mean`` of the config,
            or values that are not finite.
    """
    channels = array.shape[2] if array.ndim > 2 else 1
    wrong = [mean for mean in means if isinstance(mean, (list, tuple)) and len(mean) not in (1, channels)]
    if size and array.shape[:2] != size[::-1] or wrong:
        raise UserError(f'{path!r} is read as an array {array.shape}, which should be (height, width, channels) of '
                        f'{"x".join(map(str, size or ()))} pixels, and mean is {[*wrong, *means][0]}. Write it with '
                        'its channels last, and give mean and std a value for each channel.')
    if not np.isfinite(array).all():
        raise UserError(f'{path!r} holds pixels that are NaN or infinite. Write a number there in all images, such as '
                        'the mean of the channel.')


def check_sizes(infos: dict[str, dict[str, Any]], headers: dict[str, Header], reader: Any) -> None:
    """Compare the sizes of images with those in their annotation file, whose boxes are in its pixels.

    Raises:
        UserError: an image has another size, because it was resized, or is turned by EXIF.
    """
    for path, info in infos.items():
        size = seen_size(headers.get(path), reader)
        if size and 'width' in info and (info['width'], info['height']) != size:
            raise UserError(f'the annotation file gives {path!r} the size {info["width"]}x{info["height"]}, but '
                            f'upright (EXIF applied) it has {size}. Correct the file, or restore the annotated image.')


def check_label_map_files(pairs: dict[str, str], images: dict[str, Header], reader: Any) -> None:
    """Check that label maps can be read, hold class numbers, and have the size of their images.

    Args:
        pairs: the image of each label map.
        images: headers of images.
        reader: the transform that loads images.

    Raises:
        UserError: they do not.
    """
    headers, unreadable = read_headers(list(pairs))
    for path, reason in sorted(unreadable.items()):
        raise UserError(f'{len(unreadable)} of {len(pairs)} label maps cannot be read, such as {path!r} ({reason}). '
                        'Write them again, or remove their images.')
    turned = []
    for path, header in headers.items():
        if header.channels > 1 or 'int' not in header.dtype or header.dtype in ('uint2', 'uint4'):
            raise UserError(f'the label map {path!r} holds {header.channels} channels of {header.dtype}; save class '
                            'numbers as an 8-bit grey or palette PNG with one channel. Fewer bits would be stretched.')
        image = images.get(pairs[path])
        size = seen_size(image, reader)
        if size and header.size != size:
            raise UserError(f'the label map {path!r} has {header.size[0]}x{header.size[1]} pixels, and its image '
                            f'{size[0]}x{size[1]} upright (EXIF applied). Give both one size.')
        if size and turns(reader) and image.orientation != header.orientation:
            turned.append(pairs[path])
    _log(f'EXIF turns {len(turned)} of {len(pairs)} images, such as {min(turned, default="")!r}, and not their label '
         'maps, which have to show the image upright. If they show it as it is stored, set color_type='
         "'color_ignore_orientation' of LoadImageFromFile, or remove the orientation." * bool(turned))


def check_label_maps(paths: list[str], dataset: Any, head: dict[str, Any] | list[dict[str, Any]], least: int) -> None:
    """Check the values of label maps against the classes of their data set and the head's ``ignore_index``.

    Args:
        paths: label map files; :data:`MAX_LABEL_MAPS` of them are read in threads, evenly spread.
        dataset: an mmseg data set.
        head: config of the segmentor's ``decode_head``.
        least: number of classes that they must hold.

    Raises:
        UserError: a map cannot be read or holds other values, or all hold fewer classes than ``least``.
    """
    shift = int(bool(dataset.metainfo.get('reduce_zero_label')))
    # A label_map leads from the data set's own classes to fewer.
    number = len(dataset.metainfo.get('label_map') or dataset.metainfo['classes'])
    head = head[-1] if isinstance(head, list) else head
    ignored = {head.get('ignore_index', 255)} | ({0} if shift else set())  # 255: MMSegmentation's default
    classes = set(range(shift, number + shift)) - ignored

    def read(path: str) -> set[int]:
        """Return the values of a label map, as MMSegmentation reads them."""
        try:
            with Image.open(path) as image:
                pixels = np.asarray(image)
        except Exception as error:  # a truncated file, for example
            raise UserError(f'the label map {path!r} cannot be read ({error}). Write it again.') from error
        if pixels.max() > 255 or pixels.min() < 0:
            raise UserError(f'the label map {path!r} holds the values {pixels.min()} to {pixels.max()}, and '
                            'MMSegmentation reads 8 bits, so that 256 would become class 0. Allowed are 0 to 255.')
        values = set(np.flatnonzero(np.bincount(pixels.ravel())).tolist())
        wrong = sorted(values - classes - ignored)
        if wrong:
            raise UserError(f'the label map {path!r} holds the values {wrong[:10]}; allowed are {shift} to '
                            f'{number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored). Correct the '
                            'map, the classes, or ignore_index.')
        return values

    if len(paths) > MAX_LABEL_MAPS:
        print_log(f'{MAX_LABEL_MAPS} of {len(paths)} label maps are checked.', logger='current')
    with ThreadPoolExecutor() as pool:
        found = classes & set().union(*pool.map(read, spread(paths, MAX_LABEL_MAPS)))
    if len(found) < min(len(classes), least):
        raise UserError(f'{len(paths)} label maps hold {sorted(found)} and the ignored {sorted(ignored)} alone: there '
                        'is nothing to learn or to score. In masks of 0 and 255, write 1 for 255.')
