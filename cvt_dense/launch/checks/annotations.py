"""COCO files, and folders of which a segmentation data set takes its names, before a data set is built."""
import inspect
import os
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from ...config.data_sets import dataset_class, leaf_datasets, metainfo
from ...errors import UserError
from ...nodes import dicts, type_name
from . import coco


def check_annotations(cfg: Config, stages: Sequence[str]) -> None:
    """Check the COCO files and the folders of images of every data loader.

    Images without annotations are counted in the log; a training set leaves them out where its ``filter_cfg`` has
    ``filter_empty_gt``. A file without annotations will do beside others that have some, and for a test that only
    writes its results down (``format_only``), as of COCO's test-dev.

    Raises:
        UserError: if a folder has no image with the data set's suffix; a file is not in COCO's format; ``classes`` is
            not the file's categories or in another order; annotations name unknown categories; there is no
            annotation, or no mask where masks are loaded; the evaluator's file has other objects in the same images.
    """
    for stage in stages:
        if (cfg.get(f'{stage}_dataloader') or {}).get('dataset'):
            _check_stage(cfg, stage)


def _check_stage(cfg: Config, stage: str) -> None:
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
    """Check that a folder whose files are a segmentation data set's names has images."""
    prefixes, suffix = dataset.get('data_prefix') or {}, dataset.get('img_suffix')
    if type_name(dataset) == 'CocoDataset' or 'seg_map_path' not in prefixes or dataset.get('ann_file'):
        return
    if any(node.get('backend_args') for node in dicts(dataset)):
        raise UserError(f'{where}: images are read through backend_args, which cannot list them; set '
                        'dataset.ann_file to a text file with their names, without suffix, one per line.')
    if suffix is None:
        suffix = inspect.signature(dataset_class(dataset, cfg)).parameters['img_suffix'].default
    folder = os.path.join(dataset.get('data_root') or '', prefixes['img_path'])
    names = [name for _, _, names in os.walk(folder, followlinks=True) for name in names]
    if not any(name.endswith(suffix) for name in names):
        endings = sorted({os.path.splitext(name)[1] for name in names})[:10]
        raise UserError(f'{where}: no file in {folder!r} ends in img_suffix={suffix!r}; endings there: {endings}. '
                        'Correct img_suffix or data_prefix.')
