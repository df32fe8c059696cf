"""The annotations of images, from the data sets of a config: tools/predict.py puts them beside its predictions."""
import copy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _pictures import Object
from mmengine.config import Config
from mmengine.registry import DATASETS, TRANSFORMS, init_default_scope

from cvt_dense.errors import UserError
from cvt_dense.launch.data_sets import leaf_datasets

# Reads an image's annotation, given its height and width: a class's name, objects, or a label map (H, W).
Annotation = Callable[[tuple[int, int]], str | list[Object] | np.ndarray]
STAGES = ('test', 'val', 'train')


def find_annotations(cfg: Config, images: Sequence[Path]) -> list[Annotation]:
    """What reads the annotation of each of ``images``, looked for in the test, then val, then training data.

    Raises:
        UserError: an image is in none of them.
    """
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    wanted = {path.resolve() for path in images}
    names = {path.name for path in wanted}
    found: dict[Path, Annotation] = {}
    searched: list[str] = []
    for stage, dataset in _data_sets(cfg, searched):
        annotations = dict(_annotations(dataset, cfg.get('default_scope'), names))
        searched.append(f'{stage} ({len(dataset)} images)')
        for path in wanted & annotations.keys() - found.keys():
            found[path] = annotations[path]
        if len(found) == len(wanted):
            return [found[path.resolve()] for path in images]
    missing = [path for path in images if path.resolve() not in found]
    raise UserError(f'--ground-truth: {len(missing)} of {len(images)} images, e.g. {missing[0]}, have no annotation in '
                    f'the data of {cfg.filename}: {", ".join(searched)}. Give images of these data sets '
                    '(--data-root DIR if they lie elsewhere), or leave --ground-truth out.')


def _data_sets(cfg: Config, searched: list[str]) -> Iterator[tuple[str, Any]]:
    """(stage, data set) with all of its images, each once; those that cannot be read are named in ``searched``."""
    seen: list[dict[str, Any]] = []
    for stage in STAGES:
        for node in leaf_datasets((cfg.get(f'{stage}_dataloader') or {}).get('dataset') or {}):
            node = copy.deepcopy(dict(node))
            for key in ('indices', 'filter_cfg') if 'data_prefix' in node else ():
                node.pop(key, None)
            if not node or dict(node, pipeline=None) in seen:
                continue
            seen.append(dict(node, pipeline=None))
            try:
                yield stage, DATASETS.build(node)
            except FileNotFoundError as error:
                searched.append(f'{stage} (not there: {error})')


def _annotations(dataset: Any, scope: str | None, names: set[str]) -> Iterator[tuple[Path, Annotation]]:
    """(image, annotation) of a data set's images whose file has one of ``names``."""
    for i in range(len(dataset)):
        info = dataset.get_data_info(i)
        path = Path(info['img_path'])
        annotated = scope != 'mmseg' or Path(info.get('seg_map_path') or '').is_file()
        if path.name in names and annotated:
            read = dict(mmdet=_objects, mmseg=_label_map).get(scope, _class_name)
            yield path.resolve(), lambda shape, read=read, i=i: read(dataset, i, shape)


def _class_name(dataset: Any, index: int, shape: tuple[int, int]) -> str:
    label = dataset.get_data_info(index)['label']
    classes = dataset.metainfo['classes']
    return str(classes[label] if label < len(classes) else label)


def _objects(dataset: Any, index: int, shape: tuple[int, int]) -> list[Object]:
    """Without those that neither training nor scores count, as of a crowd."""
    info = dataset.get_data_info(index)
    instances = [instance for instance in info['instances'] if not instance.get('ignore_flag')]
    with_mask = bool(instances) and all(instance.get('mask') for instance in instances)
    height, width = info.get('height', shape[0]), info.get('width', shape[1])
    if (height, width) != shape:
        raise UserError(f'the annotation of {info["img_path"]} is for {width}x{height} pixels, the image has '
                        f'{shape[1]}x{shape[0]}: correct the annotation file, or leave --ground-truth out.')
    load = TRANSFORMS.build(dict(type='LoadAnnotations', with_mask=with_mask))
    truth = load(dict(info, instances=instances, ori_shape=shape))
    masks = truth['gt_masks'].masks.astype(bool) if with_mask else [None] * len(instances)
    boxes = getattr(truth['gt_bboxes'], 'tensor', truth['gt_bboxes']).tolist()
    return [Object(int(label), tuple(box), mask)
            for label, box, mask in zip(truth['gt_bboxes_labels'].tolist(), boxes, masks)]


def _label_map(dataset: Any, index: int, shape: tuple[int, int]) -> np.ndarray:
    info = dataset.get_data_info(index)
    load = next((step for step in dataset.pipeline.transforms if type(step).__name__ == 'LoadAnnotations'), None)
    labels = (load or TRANSFORMS.build(dict(type='LoadAnnotations')))(info)['gt_seg_map']
    if labels.shape != shape:
        raise UserError(f'the label map {info["seg_map_path"]} has {labels.shape[1]}x{labels.shape[0]} pixels, its '
                        f'image {shape[1]}x{shape[0]}: correct the map, or leave --ground-truth out.')
    return labels
