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

from ...config.nodes import dicts, type_name
from ...engine.samplers import leaves
from ...errors import UserError
from ...images import Header, explain_loss, find_missing, images_below, open_image, read_header
from .batches import check_pipeline

MAX_HEADERS = 100_000  # of a data set, which take some ten seconds
MAX_LABEL_MAPS = 2000  # label maps that are read before a run, which takes some seconds
SAMPLE = 32  # images of one kind that are decoded


def check_files(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that the images and label maps of the data sets exist, and that their readers give what they hold.

    Files behind ``backend_args`` and inside tar files are not looked for.

    Raises:
        UserError: files are missing, or are as :func:`check_images` or :func:`check_label_maps` refuses them.
    """
    for stage, dataset in ((stage, leaf) for stage, whole in datasets.items() for leaf in leaves(whole)):
        where = f'{stage}_dataloader'
        if not hasattr(dataset, 'get_data_info') or any(
                node.get('backend_args') for node in dicts(cfg[where].dataset)):
            continue
        listed = type(dataset).__name__ == 'ImageDataset'  # it has checked its files itself
        step = -(-len(dataset) // MAX_HEADERS) if listed else 1
        infos = [dataset.get_data_info(i) for i in range(0, len(dataset), step)]
        infos = [info for info in infos if isinstance(info.get('img_path'), str) and 'offset' not in info]
        images, label_maps = ([info[key] for info in infos if isinstance(info.get(key), str)]
                              for key in ('img_path', 'seg_map_path'))
        for paths in () if listed else (images, label_maps):
            missing = find_missing(paths)
            if missing:
                raise UserError(f'{where}: {len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. '
                                'Correct data_prefix or seg_map_suffix, or complete the data.')
        steps = getattr(getattr(dataset, 'pipeline', None), 'transforms', ())
        reader = next((step for step in steps if type(step).__name__.startswith('LoadImage')), None)
        if not images or reader is None and not listed:
            continue
        headers = check_images({info['img_path']: info for info in infos}, reader, cfg, where)
        if not listed:
            check_pipeline(dataset, headers, cfg, stage)
        check_sizes([info for info in infos if 'width' in info], headers, reader, where)
        if getattr(dataset, 'img_suffix', None) and not dataset.ann_file:
            report_other_suffixes(dataset, set(label_maps), where)
        if label_maps and 'decode_head' in cfg.model:
            pairs = {info['seg_map_path']: info['img_path'] for info in infos if 'seg_map_path' in info}
            check_label_map_files(pairs, headers, reader, where)
            check_label_maps(label_maps, dataset, cfg.model.decode_head, where)


def report_other_suffixes(dataset: Any, used: set[str], where: str) -> None:
    """Log how many images of a folder are left out, because their suffix is not the data set's ``img_suffix``."""
    others = {path for path in images_below(dataset.data_prefix['img_path'])
              if not path.endswith(dataset.img_suffix)} - used
    if others:
        print_log(f'{where}: {len(others)} images, such as {min(others)!r}, are left out: their names do not end with '
                  f'img_suffix={dataset.img_suffix!r}.', logger='current', level=30)


def spread(paths: Sequence[Any], number: int) -> Sequence[Any]:
    """Return at most ``number`` of ``paths``, evenly spread."""
    return paths if len(paths) <= number else [paths[i * len(paths) // number] for i in range(number)]


def read_headers(paths: Sequence[str]) -> tuple[dict[str, Header], dict[str, str]]:
    """Return the headers of image files, and the reasons of those that cannot be read."""

    def read(path: str) -> Header | str:
        try:
            return read_header(path)
        except Exception as error:  # damaged files raise anything from SyntaxError to struct.error
            return f'{type(error).__name__}: {error}'

    with ThreadPoolExecutor() as pool:  # network disks answer many at once
        found = dict(zip(paths, pool.map(read, paths)))
    return ({path: header for path, header in found.items() if isinstance(header, Header)},
            {path: reason for path, reason in found.items() if isinstance(reason, str)})


def check_images(infos: dict[str, dict[str, Any]], reader: Any, cfg: Config, where: str) -> dict[str, Header]:
    """Check the headers of images, and the values of a sample of each kind.

    Args:
        infos: a data set's entry for each image file, of which :data:`MAX_HEADERS`, evenly spread, are opened.
        reader: see :func:`cvt_dense.images.explain_loss`.
        cfg: whole config.
        where: setting that names the data set, for messages.

    Returns:
        The headers.

    Raises:
        UserError: too many images cannot be read, or what the reader gives of them is not what they hold.
    """
    paths = spread(list(infos), MAX_HEADERS)
    headers, unreadable = read_headers(paths)
    kinds = defaultdict(list)
    for path, header in headers.items():
        kinds[header.format, header.dtype, header.channels, header.layout].append(path)
    for same in kinds.values():
        sample = random.Random(0).sample(same, min(len(same), SAMPLE))
        reason = explain_loss(headers[sample[0]], reader, *sample)
        if reason:
            raise UserError(f'{where}: {len(same)} of {len(paths)} images, such as {min(same)!r}: {reason}.')
        report_dropped(same, headers[sample[0]], reader, where)
        unreadable |= check_values(sample, infos, headers, reader, cfg, where)
    unknown = [path for path in unreadable if path not in headers and reader is not None]
    # mmcv reads formats that Pillow does not: all are read, where it reads a sample.
    if all(isinstance(load(infos[path], reader), np.ndarray) for path in unknown[:SAMPLE]):
        unreadable = {path: reason for path, reason in unreadable.items() if path not in unknown}
    share = ((cfg.get('default_hooks') or {}).get('unreadable_images') or {}).get('max_share', 0.05)
    if len(unreadable) > share * len(paths) or len(unreadable) == len(paths):
        raise UserError(f'{where}: {len(unreadable)} of {len(paths)} images cannot be read, such as '
                        f'{min(unreadable)!r} ({unreadable[min(unreadable)]}). Repair or remove them, or raise '
                        'default_hooks.unreadable_images.max_share.')
    return headers


def report_dropped(paths: Sequence[str], header: Header, reader: Any, where: str) -> None:
    """Log what a reader of 8-bit colours takes of images with more channels or bits."""
    if getattr(reader, 'color_type', 'color') == 'unchanged' or not header.layout and header.bits <= 8:
        return
    taken = 'the colours alone' if header.layout else 'the upper 8 bits'
    print_log(f'{where}: of {len(paths)} images with {header.channels} channels of {header.dtype}, such as '
              f'{min(paths)!r}, {taken} are read.', logger='current', level=30)


def load(info: dict[str, Any], reader: Any) -> np.ndarray | str:
    """Return an image as its reader gives it, or the reason why it gives none."""
    try:
        return np.asarray(open_image(info['img_path'])) if reader is None else reader(dict(info))['img']
    except Exception as error:  # each decoder raises its own
        return f'{type(error).__name__}: {error}'


def turns(reader: Any) -> bool:
    """Return whether a reader turns images as EXIF says."""
    kind = getattr(reader, 'color_type', 'color')
    return kind in ('color', 'grayscale') and getattr(reader, 'imdecode_backend', '') != 'tifffile'


def seen_size(header: Header | None, reader: Any) -> tuple[int, int] | None:
    """Return the width and height of an image as its reader gives it, None if the header does not tell."""
    if header is None or header.layout == 'pages':
        return None
    return header.upright if turns(reader) else header.size


def check_values(sample: Sequence[str], infos: dict[str, Any], headers: dict[str, Header], reader: Any, cfg: Config,
                 where: str) -> dict[str, str]:
    """Check the arrays of images of one kind.

    Returns:
        The reason of each image that cannot be read.

    Raises:
        UserError: an array has another size than the header, another number of channels than the config's ``mean``, or
            values that are not finite.
    """
    steps = [node for node in dicts(cfg[where].dataset) if type_name(node) == 'Normalize']
    means = [node.get('mean') for node in (cfg.model.get('data_preprocessor') or {}, *steps)]
    unreadable = {}
    for path in sample:
        array = load(infos[path], reader)
        if isinstance(array, str):
            unreadable[path] = array
            continue
        size = seen_size(headers[path], reader)
        if size and array.shape[:2] != size[::-1]:
            raise UserError(f'{where}: {path!r} has {size[0]}x{size[1]} pixels and is read as an array {array.shape}; '
                            'allowed is (height, width, channels). Write it with its channels last.')
        channels = array.shape[2] if array.ndim > 2 else 1
        wrong = [mean for mean in means if isinstance(mean, (list, tuple)) and len(mean) not in (1, channels)]
        if wrong:
            raise UserError(f'{where}: {path!r} is read as an array {array.shape}, with {channels} channels, but mean '
                            f'is {wrong[0]}. Give mean and std a value for each channel, or another color_type to the '
                            'step that loads images.')
        if not np.isfinite(array).all():
            raise UserError(f'{where}: {path!r} holds pixels that are NaN or infinite, and {len(sample)} images of its '
                            'kind were looked at. Write a number there, such as the mean of the channel.')
    return unreadable


def check_sizes(infos: Sequence[dict[str, Any]], headers: dict[str, Header], reader: Any, where: str) -> None:
    """Compare the sizes of images with those in their annotation file, whose boxes are in its pixels.

    Raises:
        UserError: an image has another size, because it was resized, or is turned by EXIF.
    """
    for info in infos:
        path, given = info['img_path'], (info['width'], info['height'])
        size = seen_size(headers.get(path), reader)
        if size and given != size:
            raise UserError(f'{where}: the annotation file gives {path!r} the size {given}, but upright (EXIF applied) '
                            f'it has {size}. Correct the file, or restore the annotated image.')


def check_label_map_files(pairs: dict[str, str], images: dict[str, Header], reader: Any, where: str) -> None:
    """Check that label maps can be read, hold class numbers, and have the size of their images.

    Args:
        pairs: the image of each label map.
        images: headers of images.
        reader: the transform that loads images.
        where: setting that names the data set, for messages.

    Raises:
        UserError: they do not.
    """
    headers, unreadable = read_headers(spread(list(pairs), MAX_HEADERS))
    if unreadable:
        path = min(unreadable)
        raise UserError(f'{where}: {len(unreadable)} of {len(pairs)} label maps cannot be read, such as {path!r} '
                        f'({unreadable[path]}). Write them again, or remove their images.')
    turned = []
    for path, header in headers.items():
        if header.channels > 1 or not header.dtype.startswith(('uint', 'int')):
            raise UserError(f'{where}: the label map {path!r} holds {header.channels} channels of {header.dtype}; save '
                            'class numbers as an 8-bit grey or palette PNG with one channel.')
        if header.dtype in ('uint2', 'uint4') and header.format != 'GIF':
            raise UserError(f'{where}: the label map {path!r} has {header.bits} bits, which are stretched to 8: class '
                            f'1 would become {255 // (2**header.bits - 1)}. Save it with 8 bits.')
        image = images.get(pairs[path])
        size = seen_size(image, reader)
        if size and header.size != size:
            raise UserError(f'{where}: the label map {path!r} has {"x".join(map(str, header.size))} pixels, and its '
                            f'image {"x".join(map(str, size))}{" upright (EXIF applied)" * (image.size != size)}. Give '
                            'both one size.')
        if image and turns(reader) and image.orientation != header.orientation:
            turned.append(pairs[path])
    if turned:
        print_log(f'{where}: EXIF turns {len(turned)} of {len(pairs)} images, such as {min(turned)!r}, and not their '
                  'label maps, which have to show the image upright. If they show it as it is stored, set color_type='
                  "'color_ignore_orientation' of LoadImageFromFile, or remove the orientation from the images.",
                  logger='current', level=30)


def check_label_maps(paths: list[str], dataset: Any, head: dict[str, Any] | list[dict[str, Any]], where: str) -> None:
    """Check the values of label maps against the classes of their data set and the head's ``ignore_index``.

    Args:
        paths: label map files; :data:`MAX_LABEL_MAPS` of them are read in threads, evenly spread.
        dataset: an mmseg data set.
        head: config of the segmentor's ``decode_head``.
        where: setting that names the data set, for messages.

    Raises:
        UserError: a map cannot be read or holds other values; or every pixel is ignored, or in training of one class.
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
            raise UserError(f'{where}: the label map {path!r} cannot be read ({error}). Write it again.') from error
        if pixels.max() > 255 or pixels.min() < 0:
            raise UserError(f'{where}: the label map {path!r} holds the values {pixels.min()} to {pixels.max()}, and '
                            'MMSegmentation reads 8 bits, so that 256 would become class 0. Allowed are 0 to 255.')
        values = set(np.flatnonzero(np.bincount(pixels.ravel())).tolist())
        wrong = sorted(values - classes - ignored)
        if wrong:
            raise UserError(f'{where}: the label map {path!r} holds the values {wrong[:10]}; allowed are {shift} to '
                            f'{number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored). Correct the '
                            'map, the classes, or ignore_index.')
        return values

    if len(paths) > MAX_LABEL_MAPS:
        print_log(f'{where}: {MAX_LABEL_MAPS} of {len(paths)} label maps are checked.', logger='current')
        paths = spread(paths, MAX_LABEL_MAPS)
    with ThreadPoolExecutor() as pool:
        found = classes & set().union(*pool.map(read, paths))
    if len(found) < min(len(classes), 2 if where == 'train_dataloader' else 1):
        raise UserError(f'{where}: {len(paths)} label maps hold {sorted(found)} and the ignored {sorted(ignored)} '
                        'alone: there is nothing to learn or to score. In masks of 0 and 255, write 1 for 255.')
