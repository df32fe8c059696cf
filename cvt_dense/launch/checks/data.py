"""Check the classes, images and label maps of data sets that are built."""
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.logging import print_log
from PIL import Image

from ...config.data_sets import class_names
from ...config.nodes import dicts
from ...errors import UserError
from ...pretraining.listing import find_missing, images_below
from ...pretraining.transforms import upright_size

MAX_LABEL_MAPS = 2000  # label maps that are read before a run, which takes some seconds


def check_class_folders(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that training and validation have the same classes, a classifier's as many as it has outputs.

    Raises:
        UserError: the classes are in another order, or a classifier's class folders differ or are fewer.
    """
    outputs = cfg.model.get('num_classes')
    train, val = (list(class_names(datasets.get(stage)) or ()) for stage in ('train', 'val'))
    if train and val and train != val and (outputs is not None or sorted(train) == sorted(val)):
        missing = [sorted({*val, *train} - set(names))[:5] for names in (train, val)]
        raise UserError(f'the classes are numbered differently: training, {train[:5]}, lacks {missing[0]}, validation, '
                        f'{val[:5]}, lacks {missing[1]}. Give both the same folders, or categories in one order.')
    # A run that was started with --no-check may go on.
    if train and outputs is not None and len(train) < outputs and not cfg.get('resume'):
        raise UserError(f'model.num_classes={outputs}, but the training set has {len(train)} class folders, '
                        f'{train[:5]}: set it to {len(train)}, correct data_root, or train anyway with --no-check.')


def check_files(cfg: Config, datasets: dict[str, Any]) -> None:
    """Check that the images and label maps of MMDetection's and MMSegmentation's data sets exist and fit the model.

    Files behind ``backend_args`` are not looked for.

    Raises:
        UserError: files are missing, or are as :func:`check_sizes` or :func:`check_label_maps` refuses them.
    """
    for stage, dataset in datasets.items():
        where = f'{stage}_dataloader'
        listed = type(dataset).__name__ == 'ImageDataset'  # it has checked its files itself
        if listed or not hasattr(dataset, 'get_data_info') or not class_names(dataset) or any(
                node.get('backend_args') for node in dicts(cfg[where].dataset)):
            continue
        infos = [dataset.get_data_info(i) for i in range(len(dataset))]
        images, label_maps = ([info[key] for info in infos if isinstance(info.get(key), str)]
                              for key in ('img_path', 'seg_map_path'))
        for paths in (images, label_maps):
            missing = find_missing(paths)
            if missing:
                raise UserError(f'{where}: {len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. '
                                'Correct data_prefix or seg_map_suffix, or complete the data.')
        if 'ignore_orientation' not in str(cfg[where].dataset):
            check_sizes({info['img_path']: (info['width'], info['height']) for info in infos if 'width' in info}, where)
        if getattr(dataset, 'img_suffix', None) and not dataset.ann_file:
            others = {path for path in images_below(dataset.data_prefix['img_path'])
                      if not path.endswith(dataset.img_suffix)} - set(label_maps)
            if others:
                print_log(f'{where}: {len(others)} images, such as {min(others)!r}, are left out: their names do not '
                          f'end with img_suffix={dataset.img_suffix!r}.', logger='current', level=30)
        if label_maps and 'decode_head' in cfg.model:
            check_label_maps(label_maps, dataset, cfg.model.decode_head, where)


def check_sizes(sizes: dict[str, tuple[int, int]], where: str) -> None:
    """Compare the sizes of images with those in their annotation file, whose boxes are in its pixels.

    Args:
        sizes: the annotation file's width and height of each image.
        where: setting that names the data set, for messages.

    Raises:
        UserError: an image has another size, because it was resized, or is turned by EXIF.
    """

    def read(path: str) -> tuple[int, int]:
        with suppress(OSError, Image.DecompressionBombError), Image.open(path) as image:
            return upright_size(image)
        return sizes[path]  # mmcv reads other formats, and larger images

    paths = list(sizes)[::-(-len(sizes) // 500) or 1]  # evenly spread; of a JPEG the header is read, of a PNG all
    with ThreadPoolExecutor() as pool:
        for path, size in zip(paths, pool.map(read, paths)):
            if sizes[path] != size:
                raise UserError(f'{where}: the annotation file gives {path!r} the size {sizes[path]}, but upright '
                                f'(EXIF applied) it has {size}. Correct the file, or restore the annotated image.')


def check_label_maps(paths: list[str], dataset: Any, head: dict[str, Any] | list[dict[str, Any]], where: str) -> None:
    """Check the values of label maps against the classes of their data set and the head's ``ignore_index``.

    Args:
        paths: label map files; :data:`MAX_LABEL_MAPS` of them are read in threads, evenly spread.
        dataset: an mmseg data set.
        head: config of the segmentor's ``decode_head``.
        where: setting that names the data set, for messages.

    Raises:
        UserError: a map is not one channel of whole numbers or holds other values; or every pixel is ignored, or in
            training of one class.
    """
    shift = int(bool(dataset.metainfo.get('reduce_zero_label')))
    # A label_map leads from the data set's own classes to fewer.
    number = len(dataset.metainfo.get('label_map') or dataset.metainfo['classes'])
    head = head[-1] if isinstance(head, list) else head
    ignored = {head.get('ignore_index', 255)} | ({0} if shift else set())  # 255: MMSegmentation's default
    classes = set(range(shift, number + shift)) - ignored

    def read(path: str) -> set[int]:
        """Return the values of a label map, as MMSegmentation reads them."""
        with Image.open(path) as image:
            if len(image.getbands()) > 1 or image.mode == 'F':
                raise UserError(f'{where}: the label map {path!r} has mode {image.mode!r}; save class numbers as an '
                                '8-bit grey or palette PNG with one channel.')
            values = set(np.flatnonzero(np.bincount(np.asarray(image).ravel())).tolist())
        wrong = sorted(values - classes - ignored)
        if wrong:
            raise UserError(f'{where}: the label map {path!r} holds the values {wrong[:10]}; allowed are {shift} to '
                            f'{number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored). Correct the '
                            'map, the classes, or ignore_index.')
        return values

    if len(paths) > MAX_LABEL_MAPS:
        print_log(f'{where}: {MAX_LABEL_MAPS} of {len(paths)} label maps are checked.', logger='current')
        paths = [paths[i * len(paths) // MAX_LABEL_MAPS] for i in range(MAX_LABEL_MAPS)]
    with ThreadPoolExecutor() as pool:
        found = classes & set().union(*pool.map(read, paths))
    if len(found) < min(len(classes), 2 if where == 'train_dataloader' else 1):
        raise UserError(f'{where}: {len(paths)} label maps hold {sorted(found)} and the ignored {sorted(ignored)} '
                        'alone: there is nothing to learn or to score. In masks of 0 and 255, write 1 for 255.')


DATASET_CHECKS = [check_class_folders, check_files]  # each takes cfg and the data sets by stage
