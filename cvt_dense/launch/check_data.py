"""Checks the files of detection and segmentation data before a run, so that a mistake costs seconds, not hours.

MMDetection and MMSegmentation find most of these late (in a worker, epochs into the run) or never: a
category under another name is dropped without a word, a label value beyond the classes is left out of
the score.
"""
import inspect
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.fileio import get_file_backend, list_from_file
from mmengine.logging import print_log
from mmengine.registry import DATASETS
from PIL import Image

from ..errors import UserError
from ..nodes import dicts, type_name, walk

DEFAULT_IGNORE_INDEX = 255  # of MMSegmentation's heads
MAX_LABEL_MAPS = 2000  # that are read before a run: some seconds


def check_heads(cfg: Config, stage: str) -> None:
    """Compares the heads' numbers of classes with those that ``cfg`` gives its ``{stage}_dataloader``; reads no data.

    A head that predicts the data set's classes must have as many: boxes, their masks, the last decode head. Another
    one, auxiliary or semantic beside boxes, may have its own number; that is a line in the log.

    Raises:
        UserError: a predicting head has another number.
    """
    where = f'{stage}_dataloader'
    for dataset in _leaf_datasets(cfg[where].dataset):
        classes = _metainfo(dataset, cfg, 'classes')
        if not classes or isinstance(classes, str) or any('language_model' in node for node in dicts(cfg.model)):
            continue  # unknown, or described by words instead of numbers
        things = _metainfo(dataset, cfg, 'thing_classes') or classes  # boxes of panoptic data are of things only
        for path, number, predicts in _head_classes(cfg.model):
            expected = len(classes if 'decode_head' in path else things)
            if number == expected:
                continue
            if predicts:
                raise UserError(f'{where} has {expected} classes, but model.{path}.num_classes is {number}; set it to '
                                f'{expected}, or correct metainfo.classes.')
            print_log(f'{where} has {expected} classes, model.{path}.num_classes is {number}: right if that head '
                      'learns something else.', logger='current')


def check_annotations(cfg: Config, stage: str) -> None:
    """Checks the folders and COCO files of ``cfg``'s ``{stage}_dataloader`` before the data set is built.

    Images without annotations are counted in the log; a training set leaves them out where its
    ``filter_cfg`` has ``filter_empty_gt``. A file without annotations will do beside others that have some, and for
    a test that only writes its results down (``format_only``), as of COCO's test-dev.

    Raises:
        UserError: a file or folder is missing, or a folder has no image with the data set's suffix; a
            file is not JSON or not COCO's format; ``classes`` is
            not the file's categories or in another order; annotations name unknown
            categories; there is no annotation, or no mask where masks are loaded; the evaluator's file has other
            objects in the same images.
    """
    if not _is_first_process():
        return
    where = f'{stage}_dataloader'
    files: dict[str, dict[str, Any]] = {}
    annotated = 0
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
            path = os.path.join(root, folder) if isinstance(folder, str) else ''
            if path and not os.path.isdir(path):  # '' where the annotations have whole paths
                raise UserError(f'{where}: the folder {path!r} (data_prefix.{name}) does not '
                                'exist; correct data_root or data_prefix, or give --data-root DIR.')
        if type_name(dataset) == 'CocoDataset':
            file = os.path.join(root, dataset.get('ann_file', ''))
            files[file] = _read_coco_file(file, where)
            annotated += _check_coco_file(file, files[file], dataset, _metainfo(dataset, cfg, 'classes'), where)
        elif names_from_folder:
            _check_suffix(os.path.join(root, prefixes.img_path), dataset, cfg, where)
    evaluators = cfg.get(f'{stage}_evaluator') or []
    evaluators = evaluators if isinstance(evaluators, (list, tuple)) else [evaluators]
    scored = stage == 'train' or any(not evaluator.get('format_only') for evaluator in evaluators)
    if files and scored and not annotated:
        remedy = '' if stage == 'train' else (' To write predictions without scores, set format_only=True and '
                                              f'outfile_prefix in {stage}_evaluator.')
        raise UserError(f'{where}: none of the {sum(len(content["images"]) for content in files.values())} images in '
                        f'{", ".join(map(repr, files))} has an annotation of the classes: there is nothing to learn '
                        f'or to score.{remedy}')
    for evaluator in evaluators:
        given = evaluator.get('ann_file')
        if given and type_name(evaluator) == 'CocoMetric' and not evaluator.get('format_only') and files:
            _check_evaluator_file(given, files, stage)


def check_files(dataset: Any, model: dict[str, Any], where: str,
                backend_args: dict[str, Any] | None = None) -> None:
    """Checks that a built data set's images and label maps exist and fit the model.

    Classes without a single pixel are named in the log. Label maps are read in threads, 2000 at most, evenly spread.
    Through ``backend_args`` only the first image is read.

    Args:
        dataset: of MMDetection or MMSegmentation, or MMEngine's wrapper of such; others pass.
        model: the config's ``model``: its heads' ``ignore_index``.
        where: what the data set is called in messages.
        backend_args: of MMEngine's file backend that images and label maps are read through; None: files.

    Raises:
        UserError: files are missing; the backend has not got the first image;
            a label map is not one channel of whole numbers, or holds values beyond the classes; every pixel is
            ignored.
    """
    if not _is_first_process() or not hasattr(dataset, 'get_data_info') or not len(dataset):
        return
    if not dataset.metainfo.get('classes'):
        return
    if backend_args:
        _check_backend(dataset.get_data_info(0)['img_path'], backend_args, where)
        return
    files: dict[str, list[str]] = dict(img_path=[], seg_map_path=[])
    for i in range(len(dataset)):
        info = dataset.get_data_info(i)
        for key, paths in files.items():
            if isinstance(info.get(key), str):
                paths.append(info[key])
    for key, paths in files.items():
        missing = _missing(paths)
        if missing:
            raise UserError(f'{where}: {len(missing)} of {len(paths)} files do not exist, e.g. {missing[0]!r}. '
                            f'Correct {"data_prefix" if key == "img_path" else "data_prefix or seg_map_suffix"}, or '
                            'complete the data.')
    if files['seg_map_path'] and 'decode_head' in model:
        _check_label_maps(files['seg_map_path'], dataset, model, where)


# -- COCO files ------------------------------------------------------------------------------------


def _read_coco_file(file: str, where: str) -> dict[str, Any]:
    """The content of a file in COCO's format, with an empty list of annotations if it has none."""
    if not os.path.isfile(file):
        raise UserError(f'{where}: the annotation file {file!r} does not exist; correct data_root or ann_file, or give '
                        '--data-root DIR.')
    try:
        with open(file, encoding='utf-8') as f:
            content = json.load(f)
    except ValueError as error:  # JSON and text decoding errors
        raise UserError(f'{where}: {file!r} is not JSON ({error}).') from error
    lists = ('images', 'annotations', 'categories')
    if isinstance(content, dict):
        content.setdefault('annotations', [])  # COCO's files of test images have none
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in lists):
        raise UserError(f'{where}: {file!r} is JSON, but not in COCO format: a dict with the lists {", ".join(lists)} '
                        'is expected.')
    return content


def _check_coco_file(file: str, content: dict[str, Any], dataset: dict[str, Any], classes: Sequence[str],
                     where: str) -> int:
    """Compares a file with the classes and the pipeline; returns how many images have an annotation of the classes."""
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
    images = {image['id'] for image in content['images']}
    categories = {category['id'] for category in content['categories']}
    lost = [annotation for annotation in content['annotations'] if annotation.get('category_id') not in categories]
    if lost:
        raise UserError(f'{where}: {len(lost)} annotations in {file!r} have a category_id that the file does not list, '
                        f'e.g. annotation {lost[0].get("id")} with category_id {lost[0].get("category_id")!r}.')
    known = [annotation for annotation in content['annotations'] if annotation.get('image_id') in images]
    if len(known) < len(content['annotations']):
        print_log(f'{where}: {len(content["annotations"]) - len(known)} annotations in {file!r} are of images that it '
                  'does not list, and are left out.', logger='current')
    objects = [annotation for annotation in known if annotation['category_id'] in used]
    if any(node.get('with_mask') for node in dicts(dataset.get('pipeline'))):
        bare = [annotation for annotation in objects
                if not annotation.get('segmentation') and not annotation.get('ignore')]
        if bare:
            raise UserError(f'{where}: {"no" if len(bare) == len(objects) else "not every"} annotation in {file!r} has '
                            f'a mask ({len(bare)} of {len(objects)} are without, e.g. annotation {bare[0].get("id")}), '
                            'but the pipeline loads masks (with_mask). No masks: use a box detector such as RetinaNet '
                            '(configs/retinanet_cvt13_coco.py) or DINO (configs/dino_cvt13_coco.py); or add a '
                            '"segmentation" to each annotation.')
    annotated = len({annotation['image_id'] for annotation in objects})
    number = len(images) - annotated
    if number and annotated:
        print_log(f'{where}: {number} of {len(images)} images have no annotation of the classes.', logger='current')
    if len(in_file) < len(names):
        print_log(f'{where}: the categories {[name for name in names if name not in classes][:10]} are not among the '
                  'classes and are left out.', logger='current')
    return annotated


def _check_evaluator_file(given: str, files: dict[str, dict[str, Any]], stage: str) -> None:
    """An evaluator may read another file than the data set, if it has the same objects in the same images."""
    if os.path.realpath(given) in [os.path.realpath(file) for file in files]:
        return
    images = {image['id'] for content in files.values() for image in content['images']}

    def objects(contents: Iterable[dict[str, Any]]) -> set[tuple]:
        return {(a['image_id'], a['category_id'], *a['bbox'])
                for content in contents for a in content['annotations'] if a['image_id'] in images}

    content = _read_coco_file(given, f'{stage}_evaluator')
    if not images <= {image['id'] for image in content['images']} or objects([content]) != objects(files.values()):
        raise UserError(f'{stage}_evaluator.ann_file is {given!r}, but {stage}_dataloader reads {list(files)}, with '
                        'other images or objects: scores would be of those. Give both the same file.')


def _leaf_datasets(node: Any) -> Iterator[dict[str, Any]]:
    """The config of each data set inside any wrappers."""
    inner = node.get('datasets') or ([node['dataset']] if 'dataset' in node else [])
    if inner:
        for child in inner:
            yield from _leaf_datasets(child)
    else:
        yield node


def _dataset_class(dataset: dict[str, Any], cfg: Config) -> type:
    if not isinstance(dataset['type'], str):  # a pure-Python config
        return dataset['type']
    with DATASETS.switch_scope_and_registry(cfg.get('default_scope')) as registry:
        return registry.get(dataset['type'])


def _metainfo(dataset: dict[str, Any], cfg: Config, key: str) -> Any:
    """``metainfo[key]`` that a config gives its data set, or else the data set's own; a text may name a file."""
    value = (dataset.get('metainfo') or {}).get(key)
    if value is None:
        value = (getattr(_dataset_class(dataset, cfg), 'METAINFO', None) or {}).get(key)
    return list_from_file(value) if isinstance(value, str) and os.path.isfile(value) else value


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


def _head_classes(model: dict[str, Any]) -> Iterator[tuple[str, int, bool]]:
    """(place, num_classes, whether it predicts the data set's) of every head in a model's config, but for RPNs."""
    for path, node in walk(model):
        keys = path.split('.')
        if path and isinstance(node.get('num_classes'), int) and not any('rpn' in key for key in keys):
            name = [key for key in keys if not key.isdigit()][-1]
            predicts = name in ('bbox_head', 'mask_head', 'decode_head') and not node.get('class_agnostic')
            if isinstance(model.get('decode_head'), (list, tuple)) and keys[0] == 'decode_head':
                predicts = predicts and int(keys[1]) == len(model['decode_head']) - 1  # the others help it
            yield path, node['num_classes'], predicts


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
        """How many pixels have each value, as MMSegmentation reads them."""
        with Image.open(path) as image:
            if image.mode == '1':  # read as 0 and 1 by Pillow, MMSegmentation's default here
                pixels = np.bincount(np.asarray(image).ravel(), minlength=256)
            elif image.mode in ('L', 'P'):
                pixels = np.array(image.histogram())
            elif image.mode.startswith('I'):  # 16 or 32 bits
                pixels = np.bincount(np.asarray(image).ravel(), minlength=256)
            else:
                raise UserError(f'{where}: the label map {path!r} is not 8-bit with one channel, but has mode '
                                f'{image.mode!r}; save class numbers as an 8-bit grey or palette PNG.')
        wrong = sorted(set(np.flatnonzero(pixels).tolist()) - allowed)
        if wrong:
            kind = f'{shift} to {number + shift - 1} ({number} classes) and {sorted(ignored)} (ignored)'
            raise UserError(f'{where}: the label map {path!r} holds the values {wrong[:10]}; allowed are {kind}. '
                            'Correct the map, the classes, or ignore_index.')
        return pixels[:256]

    if len(paths) > MAX_LABEL_MAPS:
        print_log(f'{where}: {MAX_LABEL_MAPS} of {len(paths)} label maps are checked.', logger='current')
        paths = [paths[i * len(paths) // MAX_LABEL_MAPS] for i in range(MAX_LABEL_MAPS)]
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
