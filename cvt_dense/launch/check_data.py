"""Checks the files of detection and segmentation data before a run, so that a mistake costs seconds, not hours.

MMDetection and MMSegmentation find most of these late (in a worker, epochs into the run) or never: a
category under another name is dropped without a word, a label value beyond the classes is left out of
the score.
"""
import inspect
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.fileio import get_file_backend
from mmengine.logging import print_log
from mmengine.registry import DATASETS
from PIL import Image

from ..errors import UserError

DEFAULT_IGNORE_INDEX = 255  # of MMSegmentation's heads


def dicts(node: Any) -> Iterator[dict[str, Any]]:
    """Every dict in ``node``, at any depth of dicts and lists."""
    if isinstance(node, dict):
        yield node
    if isinstance(node, (dict, list, tuple)):
        for child in node.values() if isinstance(node, dict) else node:
            yield from dicts(child)


def check_annotations(cfg: Config, stage: str) -> None:
    """Checks the folders and COCO files of ``cfg``'s ``{stage}_dataloader`` before the data set is built.

    Images without annotations are counted in the log; a training set leaves them out where its
    ``filter_cfg`` has ``filter_empty_gt``.

    Raises:
        UserError: a file or folder is missing, or a folder has no image with the data set's suffix; a
            file is not JSON or not COCO's format; ``classes`` is
            not the file's categories or in another order; annotations name unknown images or
            categories; there is no annotation; the evaluator reads another file.
    """
    if not _is_first_process():
        return
    where = f'{stage}_dataloader'
    files = []
    for dataset in _leaf_datasets(cfg[where].dataset):
        if dataset.get('backend_args'):  # annotations are not on the file system either
            continue
        root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix') or {}
        names_from_folder = 'seg_map_path' in prefixes and not dataset.get('ann_file')
        elsewhere = any(node.get('backend_args') for node in dicts(dataset))
        if elsewhere and names_from_folder:
            raise UserError(f'{where}: images are read through backend_args, which cannot list them; set '
                            'dataset.ann_file to a text file with their names, without suffix, one a line.')
        for name, folder in () if elsewhere else prefixes.items():
            if folder is not None and not os.path.isdir(os.path.join(root, folder)):
                raise UserError(f'{where}: the folder {os.path.join(root, folder)!r} (data_prefix.{name}) does not '
                                'exist; correct data_root or data_prefix, or give --data-root DIR.')
        if str(dataset.get('type')).split('.')[-1] == 'CocoDataset':
            files.append(os.path.join(root, dataset.get('ann_file', '')))
            _check_coco_file(files[-1], _classes(dataset, cfg), where)
        elif names_from_folder:
            _check_suffix(os.path.join(root, prefixes.img_path), dataset, cfg, where)
    evaluators = cfg.get(f'{stage}_evaluator') or []
    for evaluator in evaluators if isinstance(evaluators, list) else [evaluators]:
        given = evaluator.get('ann_file')
        if files and given and os.path.realpath(given) not in [os.path.realpath(file) for file in files]:
            raise UserError(f'{stage}_evaluator.ann_file is {given!r}, but {where} reads {files}: scores would be of '
                            'other images. Give both the same file.')


def check_files(dataset: Any, model: dict[str, Any], where: str,
                backend_args: dict[str, Any] | None = None) -> None:
    """Checks that a built data set's images and label maps exist and fit the model.

    Classes without a single pixel are named in the log. Label maps are read completely, in threads. Through
    ``backend_args`` only the first image is read.

    Args:
        dataset: of MMDetection or MMSegmentation, or MMEngine's wrapper of such; others pass.
        model: the config's ``model``: its heads' ``num_classes`` and ``ignore_index``.
        where: what the data set is called in messages.
        backend_args: of MMEngine's file backend that images and label maps are read through; None: files.

    Raises:
        UserError: files are missing; the backend has not got the first image; the heads have another number of classes;
            a label map is not 8-bit, or holds values beyond the classes; every pixel is ignored.
    """
    if not _is_first_process() or not hasattr(dataset, 'get_data_info'):
        return
    classes = dataset.metainfo.get('classes')
    if not classes:
        return
    for head, number in _head_classes(model):
        if number != len(classes):
            raise UserError(f'{where} has {len(classes)} classes, but model.{head}.num_classes is {number}; set it to '
                            f'{len(classes)}, or correct metainfo.classes.')
    if backend_args:
        _check_backend(dataset.get_data_info(0)['img_path'], backend_args, where)
        return
    infos = [dataset.get_data_info(i) for i in range(len(dataset))]
    for key in ('img_path', 'seg_map_path'):
        paths = [info[key] for info in infos if info.get(key)]
        missing = _missing(paths)
        if missing:
            raise UserError(f'{where}: {len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. '
                            f'Correct {"data_prefix" if key == "img_path" else "data_prefix or seg_map_suffix"}, or '
                            'complete the data.')
    if 'seg_map_path' in infos[0] and 'decode_head' in model:
        _check_label_maps([info['seg_map_path'] for info in infos if info['seg_map_path']], dataset, model, where)


# -- COCO files ------------------------------------------------------------------------------------


def _check_coco_file(file: str, classes: Sequence[str], where: str) -> None:
    if not os.path.isfile(file):
        raise UserError(f'{where}: the annotation file {file!r} does not exist; correct data_root or ann_file, or give '
                        '--data-root DIR.')
    try:
        with open(file, encoding='utf-8') as f:
            content = json.load(f)
    except ValueError as error:  # JSON and text decoding errors
        raise UserError(f'{where}: {file!r} is not JSON ({error}).') from error
    lists = ('images', 'annotations', 'categories')
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in lists):
        raise UserError(f'{where}: {file!r} is JSON, but not in COCO format: a dict with the lists {", ".join(lists)} '
                        'is expected.')

    if isinstance(classes, str):
        raise UserError(f'{where}: classes={classes!r} is one text, not a list of names; write ({classes!r}, ).')
    names = [category['name'] for category in content['categories']]
    unknown = [name for name in classes if name not in names]
    if unknown:
        raise UserError(f'{where}: classes {unknown[:5]} ({len(unknown)} of {len(classes)}) are no categories of '
                        f'{file!r}, which has {names[:20]}. Write metainfo.classes as they are spelled there.')
    in_file = [name for name in names if name in set(classes)]
    if in_file != list(classes):
        raise UserError(f'{where}: metainfo.classes={list(classes)} must be in the order of the categories in {file!r} '
                        f'and name each once, or predictions would get wrong names: write {in_file}.')

    used = {category['id'] for category in content['categories'] if category['name'] in set(classes)}
    for key, allowed in (('image_id', {image['id'] for image in content['images']}),
                         ('category_id', {category['id'] for category in content['categories']})):
        lost = [annotation for annotation in content['annotations'] if annotation.get(key) not in allowed]
        if lost:
            raise UserError(f'{where}: {len(lost)} annotations in {file!r} have a {key} that the file does not list, '
                            f'e.g. annotation {lost[0].get("id")} with {key} {lost[0].get(key)!r}.')
    annotated = {annotation['image_id'] for annotation in content['annotations'] if annotation['category_id'] in used}
    if not annotated:
        raise UserError(f'{where}: none of the {len(content["images"])} images in {file!r} has an annotation of the '
                        f'{len(classes)} classes: there is nothing to learn or to score.')
    number = len(content['images']) - len(annotated)
    if number:
        print_log(f'{where}: {number} of {len(content["images"])} images have no annotation of the classes.',
                  logger='current')
    if len(in_file) < len(names):
        print_log(f'{where}: the categories {[name for name in names if name not in classes][:10]} are not among the '
                  'classes and are left out.', logger='current')


def _leaf_datasets(node: Any) -> Iterator[dict[str, Any]]:
    """The config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    if inner:
        for child in inner:
            yield from _leaf_datasets(child)
    else:
        yield node


def _dataset_class(dataset: dict[str, Any], cfg: Config) -> type:
    with DATASETS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        return registry.get(dataset['type'])


def _classes(dataset: dict[str, Any], cfg: Config) -> Sequence[str]:
    """The classes that a config gives its data set, or else the data set's own."""
    classes = (dataset.get('metainfo') or {}).get('classes')
    return _dataset_class(dataset, cfg).METAINFO['classes'] if classes is None else classes


def _check_suffix(folder: str, dataset: dict[str, Any], cfg: Config, where: str) -> None:
    suffix = dataset.get('img_suffix')
    if suffix is None:
        suffix = inspect.signature(_dataset_class(dataset, cfg)).parameters['img_suffix'].default
    names = [name for _, _, names in os.walk(folder, followlinks=True) for name in names]
    if not any(name.endswith(suffix) for name in names):
        endings = sorted({os.path.splitext(name)[1] for name in names})[:10]
        raise UserError(f'{where}: no file in {folder!r} ends in img_suffix={suffix!r}; endings there: {endings}. '
                        'Correct img_suffix or data_prefix.')


# -- images and label maps -------------------------------------------------------------------------


def _is_first_process() -> bool:
    return os.environ.get('RANK', os.environ.get('SLURM_PROCID', '0')) == '0'


def _check_backend(path: str, backend_args: dict[str, Any], where: str) -> None:
    try:
        # Not fileio.get: the connection that it keeps open would not outlive the start of worker processes.
        content = get_file_backend(path, backend_args=backend_args).get(path)
    except Exception as error:  # each backend raises its own
        raise UserError(f'{where}: {path!r} cannot be read through backend_args={dict(backend_args)} '
                        f'({type(error).__name__}: {error}).') from error
    if not content:
        raise UserError(f'{where}: nothing is stored under {path!r} in backend_args={dict(backend_args)}. Keys must be '
                        "the images' paths as the data set has them; correct data_root and data_prefix, or the keys.")


def _head_classes(node: Any, path: str = '') -> Iterator[tuple[str, int]]:
    """(place, num_classes) of every head in a model's config; an RPN knows no classes."""
    if isinstance(node, dict):
        for key, child in node.items():
            here = f'{path}.{key}'.lstrip('.')
            if isinstance(child, dict) and isinstance(child.get('num_classes'), int) and 'rpn' not in key:
                yield here, child['num_classes']
            yield from _head_classes(child, here)
    elif isinstance(node, (list, tuple)):
        for i, child in enumerate(node):
            if isinstance(child, dict) and isinstance(child.get('num_classes'), int):
                yield f'{path}.{i}', child['num_classes']
            yield from _head_classes(child, f'{path}.{i}')


def _missing(paths: list[str]) -> list[str]:
    """Paths that are no files; lists each folder once, which on a network disk beats asking for each file."""
    listed: dict[str, set[str]] = {}
    missing = []
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in listed:
            listed[folder] = set(os.listdir(folder or '.')) if os.path.isdir(folder or '.') else set()
        if name not in listed[folder]:
            missing.append(path)
    return missing


def _check_label_maps(paths: list[str], dataset: Any, model: dict[str, Any], where: str) -> None:
    classes = dataset.metainfo['classes']
    shift = int(bool(dataset.metainfo.get('reduce_zero_label')))
    head = model['decode_head'][-1] if isinstance(model['decode_head'], list) else model['decode_head']
    ignored = {head.get('ignore_index', DEFAULT_IGNORE_INDEX)} | ({0} if shift else set())
    label_map = dataset.metainfo.get('label_map')  # from the data set's own classes to fewer
    number = len(label_map) if label_map else len(classes)
    allowed = set(range(shift, number + shift)) | ignored

    def count(path: str) -> np.ndarray:
        with Image.open(path) as image:
            if image.mode not in ('L', 'P'):
                raise UserError(f'{where}: the label map {path!r} is not 8-bit with one channel, but has mode '
                                f'{image.mode!r}; save class numbers as an 8-bit grey or palette PNG.')
            pixels = np.array(image.histogram())
        wrong = sorted(set(np.flatnonzero(pixels).tolist()) - allowed)
        if wrong:
            kind = f'{shift} to {number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored)'
            raise UserError(f'{where}: the label map {path!r} holds the values {wrong[:10]}; allowed are {kind}. '
                            'Correct the map, the classes, or ignore_index.')
        return pixels

    with ThreadPoolExecutor() as pool:
        pixels = sum(pool.map(count, paths), np.zeros(256, dtype=np.int64))
    counted = {value: int(pixels[value]) for value in sorted(allowed - ignored)}
    if not sum(counted.values()):
        raise UserError(f'{where}: every pixel of the {len(paths)} label maps has an ignored value '
                        f'({sorted(ignored)}): there is nothing to learn or to score.')
    empty = [value - shift for value, pixel_count in counted.items() if not pixel_count]
    if empty:
        names = [classes[i] if not label_map else i for i in empty]
        print_log(f'{where}: no label map has a pixel of the classes {names}.', logger='current')
