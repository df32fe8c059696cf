"""The annotations of images, from the data sets of a config: tools/predict.py draws them beside its predictions."""
import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import supervision as sv
from mmengine.config import Config
from mmengine.registry import DATASETS, TRANSFORMS

from ..config.settings import datasets_of
from ..errors import UserError
from ..inference import Model
from ..inference.model import readable
from .data_sets import use_annotations

Annotation = Callable[[], str | sv.Detections | np.ndarray]  # returns a class's name, objects, or a label map (H, W)


def find_annotations(model: Model, images: Sequence[Path]) -> list[Annotation]:
    """Return for each of ``images`` a function that reads its annotation from the config's data sets.

    Raises:
        UserError: an image is in none of them.
    """
    wanted, names, searched = {path.resolve() for path in images}, {path.name for path in images}, []
    annotations: dict[Path, Annotation] = {}
    for stage, dataset in _data_sets(model.cfg):
        searched.append(f'{stage} ({len(dataset)} images)')
        for i in range(len(dataset)):
            info = dataset.get_data_info(i)
            path = Path(info['img_path'])
            if path.name in names and (model.task != 'segmentation' or Path(info.get('seg_map_path') or '').is_file()):
                annotations.setdefault(path.resolve(), partial(READERS[model.task], dataset, i))
        if wanted <= annotations.keys():
            return [annotations[path.resolve()] for path in images]
    missing = [path for path in images if path.resolve() not in annotations]
    raise UserError(f'--ground-truth: {len(missing)} of {len(images)} images, such as {missing[0]}, have no annotation '
                    f'in the data of {model.cfg.filename}: {", ".join(searched)}. Give images of these data sets, and '
                    '--data-root DIR if they lie elsewhere.')


def _data_sets(cfg: Config) -> Iterator[tuple[str, Any]]:
    """Yield each data set with all of its images."""
    seen: list[dict[str, Any]] = []
    cfg = copy.deepcopy(cfg)
    with tempfile.TemporaryDirectory() as folder:
        for stage in ('test', 'val', 'train'):
            use_annotations(cfg, [stage], None, folder)
            for node in datasets_of(cfg, stage):
                if 'data_prefix' in node:
                    node = {key: value for key, value in node.items() if key not in ('indices', 'filter_cfg')}
                if dict(node, pipeline=None) not in seen:
                    seen.append(dict(node, pipeline=None))
                    yield stage, DATASETS.build(copy.deepcopy(dict(node)))


def _class_name(dataset: Any, index: int) -> str:
    label, classes = dataset.get_data_info(index)['label'], dataset.metainfo['classes']
    return readable(str(classes[label] if label < len(classes) else label))


def _objects(dataset: Any, index: int) -> sv.Detections:
    """Return the annotated objects without those that neither training nor scores count, as of a crowd."""
    info = dataset.get_data_info(index)
    instances = [instance for instance in info['instances'] if not instance.get('ignore_flag')]
    if not instances:
        return sv.Detections.empty()
    with_mask = all(instance.get('mask') for instance in instances)
    load = TRANSFORMS.build(dict(type='LoadAnnotations', with_mask=with_mask))
    truth = load(dict(info, instances=instances, ori_shape=(info['height'], info['width'])))
    return sv.Detections(xyxy=truth['gt_bboxes'].tensor.numpy(), class_id=truth['gt_bboxes_labels'],
                         mask=truth['gt_masks'].masks.astype(bool) if with_mask else None)


def _label_map(dataset: Any, index: int) -> np.ndarray:
    info = dataset.get_data_info(index)
    load = next((step for step in dataset.pipeline.transforms if type(step).__name__ == 'LoadAnnotations'), None)
    return (load or TRANSFORMS.build(dict(type='LoadAnnotations')))(info)['gt_seg_map']


READERS = dict(classification=_class_name, detection=_objects, segmentation=_label_map)
