"""Check COCO files before a data set is built."""
import os
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config

from ...config.data_sets import leaf_datasets, metainfo
from ...errors import UserError
from ...nodes import type_name
from . import coco


def check_annotations(cfg: Config, stages: Sequence[str]) -> None:
    """Check the COCO files of every data loader.

    Images without annotations are counted in the log; a training set leaves them out where its ``filter_cfg`` has
    ``filter_empty_gt``. A file without annotations will do beside others that have some, and for a test that only
    writes its results down (``format_only``), as of COCO's test-dev.

    Raises:
        UserError: if a file is not in COCO's format; ``classes`` is not the file's categories or in another order;
            annotations name unknown categories; there is no annotation, or no mask where masks are loaded; the
            evaluator's file has other objects in the same images.
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
