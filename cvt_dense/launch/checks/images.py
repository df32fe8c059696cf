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

from ...config.settings import dicts, is_remote, type_name
from ...engine.samplers import find_transform, leaves
from ...errors import UserError
from ...images import Header, explain_loss, find_missing, images_below, open_image, read_header, turns
from .batches import check_pipeline

MAX_HEADERS = 100_000  # of a data set, which take some ten seconds
MAX_LABEL_MAPS = 2000  # label maps that are decoded before a run, which takes some seconds
SAMPLE = 32  # images of one kind that are decoded


def check_files(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that the images and label maps of the data sets exist, and that their readers give what they hold.

    Files of other backends than the local one and inside tar files are not looked for.

    Raises:
        UserError: files are missing, or a check below refuses them; the message names the data loader.
    """
    for stage, dataset in ((stage, leaf) for stage, whole in datasets.items() for leaf in leaves(whole)):
        loader = f'{stage}_dataloader'
        if not hasattr(dataset, 'get_data_info') or any(map(is_remote, dicts(cfg[loader].dataset))):
            continue
        try:
            _check_data_set(dataset, cfg, stage)
        except UserError as error:
            raise UserError(f'{loader}: {error}') from error


def _check_data_set(dataset: Any, cfg: Config, stage: str) -> None:
    classifies = type(dataset).__name__ == 'ImageDataset'  # it has checked that its files exist
    infos = map(dataset.get_data_info, spread(range(len(dataset)), MAX_HEADERS) if classifies else range(len(dataset)))
    images = {info['img_path']: info for info in infos
              if isinstance(info.get('img_path'), str) and 'offset' not in info}
    maps = {info['seg_map_path']: info for info in images.values() if isinstance(info.get('seg_map_path'), str)}
    if not classifies:
        for paths in (images, maps):
            missing = find_missing(paths)
            if missing:
                raise UserError(f'{len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. Correct '
                                'data_prefix or seg_map_suffix, or complete the data.')
    reader = find_transform(dataset, 'LoadImage')
    if not images or reader is None and not classifies:
        return
    sample = {path: images[path] for path in spread(list(images), MAX_HEADERS)}
    headers = check_images(sample, reader, cfg, cfg[f'{stage}_dataloader'].dataset)
    if not classifies:
        check_pipeline(dataset.pipeline, sample, headers, cfg, stage)
    if getattr(dataset, 'img_suffix', None) and not dataset.ann_file:
        others = {path for path in images_below(dataset.data_prefix['img_path'])
                  if not path.endswith(dataset.img_suffix)} - maps.keys()
        _log(others, f'images are left out, since their names do not end with img_suffix={dataset.img_suffix!r}')
    if maps and 'decode_head' in cfg.model and find_transform(dataset, 'LoadAnnotations'):
        parts = cfg.model.decode_head, cfg.model.get('auxiliary_head'), cfg.get(f'{stage}_evaluator')
        check_label_maps(maps, headers, dataset, 2 if stage == 'train' else 1, {
            node.get('ignore_index', 255) for node in dicts(parts)
            if 'num_classes' in node or type_name(node) == 'IoUMetric'})


def _log(paths: Sequence[str], text: str) -> None:
    if paths:
        print_log(f'{len(paths)} {text}, such as {min(paths)!r}.', logger='current', level=30)


def spread(values: Sequence[Any], number: int) -> Sequence[Any]:
    """Return at most ``number`` of ``values``, evenly spread."""
    return values if len(values) <= number else [values[i * len(values) // number] for i in range(number)]


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
    unreadable: dict[str, str] = {}
    kinds: dict[tuple, list[str]] = defaultdict(list)

    def read(path: str) -> Header | None:
        try:
            return read_header(path)
        except Exception as error:  # damaged files raise anything from SyntaxError to struct.error
            unreadable[path] = f'{type(error).__name__}: {error}'

    with ThreadPoolExecutor() as pool:  # network disks answer many at once
        headers = {path: header for path, header in zip(infos, pool.map(read, infos)) if header}
    # mmcv reads formats that Pillow does not: all are read, where it reads a sample.
    if reader is not None and all(isinstance(load(infos[path], reader), np.ndarray)
                                  for path in sorted(unreadable)[:SAMPLE]):
        unreadable.clear()
    for path, header in headers.items():
        kinds[header.format, header.dtype, header.channels, header.layout].append(path)
        check_size(path, infos[path], seen_size(header, reader))
    # A quarter turn shows itself in the sizes, unless they are square.
    turned = [path for path, header in headers.items() if reader is not None and turns(reader)
              and header.orientation > 1 and (header.orientation < 5 or len({*header.size}) == 1)]
    _log(turned, f'of {len(infos)} images are rotated by their EXIF orientation. Boxes and label maps must fit the '
         "rotated image; if they fit the stored pixels, set color_type='color_ignore_orientation' of LoadImageFromFile")
    steps = [node for node in dicts(dataset) if type_name(node) == 'Normalize']
    means = [node.get('mean') for node in (cfg.model.get('data_preprocessor') or {}, *steps)]
    for same in kinds.values():
        sample = random.Random(0).sample(same, min(len(same), SAMPLE))
        reason, note = explain_loss(headers[sample[0]], reader, *sample)
        if reason:
            raise UserError(f'{len(same)} of {len(infos)} images, such as {min(same)!r}: {reason}.')
        _log(same if note else (), f'of {len(infos)} images: {note}')
        for path in sample:
            array = load(infos[path], reader)
            if isinstance(array, str):
                unreadable[path] = array
            else:
                check_array(path, array, seen_size(headers[path], reader), means)
    share = ((cfg.get('default_hooks') or {}).get('unreadable_images') or {}).get('max_share', 0.05)
    if len(unreadable) > share * len(infos) or len(unreadable) == len(infos):
        path, reason = min(unreadable.items())
        raise UserError(f'{len(unreadable)} of {len(infos)} images cannot be read, such as {path!r} ({reason}). Repair '
                        'or remove them, or raise default_hooks.unreadable_images.max_share.')
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


def check_size(path: str, info: dict[str, Any], size: tuple[int, int] | None) -> None:
    """Compare the size of an image with that in its annotation file, whose boxes are in its pixels.

    Raises:
        UserError: the image has another size, because it was resized, or is turned by EXIF.
    """
    if size and 'width' in info and (info['width'], info['height']) != size:
        raise UserError(f'the annotation file gives {path!r} the size {info["width"]}x{info["height"]}, but upright '
                        f'(EXIF applied) it has {size}. Correct the file, or restore the annotated image.')


def check_array(path: str, array: np.ndarray, size: tuple[int, int] | None, means: Sequence[Any]) -> None:
    """Check what a reader gives of an image.

    Raises:
        UserError: the array has another size than the header, another number of channels than a ``mean`` of the config,
            or values that are not finite.
    """
    channels = array.shape[2] if array.ndim > 2 else 1
    wrong = [mean for mean in means if isinstance(mean, (list, tuple)) and len(mean) not in (1, channels)]
    if size and array.shape[:2] != size[::-1] or wrong:
        raise UserError(f'{path!r} is read as an array of shape {array.shape}; expected is (height, width, channels) '
                        f'of {"x".join(map(str, size or ()))} pixels, with channels as in mean={[*wrong, *means][0]}. '
                        'Store the channels last, and give mean and std a value for each channel.')
    if not np.isfinite(array).all():
        raise UserError(f'{path!r} holds pixels that are NaN or infinite. Write a number there in all images, such as '
                        'the mean of the channel.')


def check_label_maps(infos: dict[str, dict[str, Any]], images: dict[str, Header], dataset: Any, least: int,
                     ignored: set[int]) -> None:
    """Check the headers of label maps, and the values that MMSegmentation reads of :data:`MAX_LABEL_MAPS` of them.

    Args:
        infos: the data set's entry for each label map.
        images: headers of images.
        dataset: an mmseg data set.
        least: number of classes that they must hold.
        ignored: what the heads and metrics have as ``ignore_index``, which are allowed if they are the same.

    Raises:
        UserError: a map cannot be read, has another size than its image or several channels, or holds other values; or
            all hold fewer classes than ``least``.
    """
    number, common = len(dataset.metainfo['classes']), ignored if len(ignored) == 1 else set()
    classes = {*range(number)} - common
    reader, loader = (find_transform(dataset, name) for name in ('LoadImage', 'LoadAnnotations'))
    decoded = set(spread(list(infos), MAX_LABEL_MAPS))

    def read(path: str) -> set[int]:
        """Return the values of a label map, as MMSegmentation reads them."""
        try:
            header = read_header(path)
            pixels = loader(dict(infos[path]))['gt_seg_map'] if path in decoded else np.zeros(0, np.uint8)
            stored = np.asarray(Image.open(path)) if header.bits > 8 and pixels.dtype == np.uint8 else pixels
        except Exception as error:  # a truncated file, for example
            raise UserError(f'the label map {path!r} cannot be read ({error}). Write it again, or remove its image.'
                            ) from error
        if (header.channels > 1 or 'int' not in header.dtype or header.dtype in ('uint2', 'uint4')
                or header.format in ('JPEG', 'MPO')):
            raise UserError(f'the label map {path!r} is a {header.format} file with {header.channels} channels of '
                            f'{header.dtype}; save class numbers as an 8-bit grey or palette PNG with one channel. '
                            'JPEG would change them, and fewer bits would be stretched.')
        size = seen_size(images.get(infos[path]['img_path']), reader)
        if size and header.size != size:
            raise UserError(f'the label map {path!r} has {header.size[0]}x{header.size[1]} pixels, and its image '
                            f'{size[0]}x{size[1]} upright (EXIF applied). Give both one size.')
        values = {*np.unique(pixels).tolist()}
        wrong = {*np.unique(stored).tolist()} - {*range(256)} - values or values - classes - common
        if wrong:
            reduced = ' (after reduce_zero_label)' * bool(dataset.metainfo.get('reduce_zero_label'))
            raise UserError(f'the label map {path!r} holds the values {sorted(wrong)[:10]}{reduced}; allowed are 0 to '
                            f'{number - 1} ({number} classes) and the ignore_index of all heads and metrics, '
                            f'{sorted(ignored)}, below 256, since MMSegmentation reads 8 bits. Correct the map, the '
                            'classes, or ignore_index.')
        return values

    with ThreadPoolExecutor() as pool:
        values = set().union(*pool.map(read, infos))
    _log(sorted(infos) if values & ignored - common else (), 'label maps hold a class that not all of the heads and '
         f'metrics ignore (ignore_index is {sorted(ignored)})')
    _log([str(dataset.metainfo['classes'][value]) for value in classes - values],
         f'of {number} classes are in none of {len(decoded)} label maps')
    if len(values & classes) < min(len(classes), least):
        raise UserError(f'{len(infos)} label maps hold {sorted(values)} alone, and {sorted(ignored)} is ignored: there '
                        'is nothing to learn or to score. In masks of 0 and 255, write 1 for 255.')
