"""Folders and annotation files that a config names, before the data set is built."""
import inspect
import os
from typing import Any

from mmengine.config import Config

from ...errors import UserError
from ...nodes import dicts, type_name
from . import coco
from .data_sets import dataset_class, is_first_process, leaf_datasets, metainfo


def check_paths(cfg: Config, stage: str) -> None:
    """Checks that the folders and COCO files of ``cfg``'s ``{stage}_dataloader`` exist.

    It imports no data set's package, so that a wrong path is an error within a second or two.

    Raises:
        UserError: a file or folder is missing.
    """
    where = f'{stage}_dataloader'
    for dataset in leaf_datasets(cfg[where].dataset):
        root = dataset.get('data_root') or ''
        if any(node.get('backend_args') for node in dicts(dataset)):  # not on the file system
            continue
        if type_name(dataset) == 'ImageDataset' and not os.path.isdir(root):
            raise UserError(f'data root {root!r} is not a folder; give the right one with --data-root DIR or data_root '
                            'in the config.')
        for name, folder in (dataset.get('data_prefix') or {}).items():
            path = os.path.join(root, folder) if isinstance(folder, str) else ''
            if path and not os.path.isdir(path):  # '' where the annotations have whole paths
                raise UserError(f'{where}: the folder {path!r} (data_prefix.{name}) does not '
                                'exist; correct data_root or data_prefix, or give --data-root DIR.')
        if type_name(dataset) == 'CocoDataset':
            coco.check_exists(os.path.join(root, dataset.get('ann_file', '')), where)


def check_annotations(cfg: Config, stage: str) -> None:
    """Checks the folders and COCO files of ``cfg``'s ``{stage}_dataloader`` before the data set is built.

    Images without annotations are counted in the log; a training set leaves them out where its
    ``filter_cfg`` has ``filter_empty_gt``. A file without annotations will do beside others that have some, and for
    a test that only writes its results down (``format_only``), as of COCO's test-dev.

    Raises:
        UserError: a file or folder is missing, or a folder has no image with the data set's suffix; a file
            is not JSON or not COCO's format; ``classes`` is not the file's categories or in another order;
            annotations name unknown categories; there is no annotation, or no mask where masks are loaded; the
            evaluator's file has other objects in the same images.
    """
    if not is_first_process():
        return
    check_paths(cfg, stage)
    where = f'{stage}_dataloader'
    files: dict[str, dict[str, Any]] = {}
    annotated = 0
    for dataset in leaf_datasets(cfg[where].dataset):
        if dataset.get('backend_args'):  # annotations are not on the file system either
            continue
        _check_names(dataset, cfg, where)
        if type_name(dataset) == 'CocoDataset':
            file = os.path.join(dataset.get('data_root') or '', dataset.get('ann_file', ''))
            files[file] = coco.read(file, where)
            annotated += coco.check(file, files[file], dataset, metainfo(dataset, cfg, 'classes'), where)
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
            coco.check_evaluator(given, files, stage)


def _check_names(dataset: dict[str, Any], cfg: Config, where: str) -> None:
    """A folder whose files are a segmentation data set's names has images."""
    root, prefixes = dataset.get('data_root') or '', dataset.get('data_prefix') or {}
    names_from_folder = 'seg_map_path' in prefixes and not dataset.get('ann_file')
    if any(node.get('backend_args') for node in dicts(dataset)):
        if names_from_folder:
            raise UserError(f'{where}: images are read through backend_args, which cannot list them; set '
                            'dataset.ann_file to a text file with their names, without suffix, one a line.')
        return
    if names_from_folder and type_name(dataset) != 'CocoDataset':
        _check_suffix(os.path.join(root, prefixes.img_path), dataset, cfg, where)


def _check_suffix(folder: str, dataset: dict[str, Any], cfg: Config, where: str) -> None:
    suffix = dataset.get('img_suffix')
    if suffix is None:
        suffix = inspect.signature(dataset_class(dataset, cfg)).parameters['img_suffix'].default
    names = [name for _, _, names in os.walk(folder, followlinks=True) for name in names]
    if not any(name.endswith(suffix) for name in names):
        endings = sorted({os.path.splitext(name)[1] for name in names})[:10]
        raise UserError(f'{where}: no file in {folder!r} ends in img_suffix={suffix!r}; endings there: {endings}. '
                        'Correct img_suffix or data_prefix.')
