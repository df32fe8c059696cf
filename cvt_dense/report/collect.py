"""Collect the predictions of a model for each image of a data set while it is tested."""
from collections.abc import Sequence
from functools import partial
from typing import Any

import cv2
import numpy as np
import supervision as sv
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image
from pycocotools import mask as mask_utils
from pycocotools.coco import COCO

from ..annotations.coco import run_lengths
from ..annotations.data_sets import reads_coco
from ..console import prints_to_log
from ..engine.data_sets import find_reader, leaves
from ..errors import UserError, listed
from ..images import open_image, reads_raw
from ..inference.palette import choose_palette
from ..models.task import task_of
from ..pretraining.listing import image_name, open_file
from . import classification, detection, segmentation
from .page import SIDE, Report, side_by_side
from .pictures import draw_labels, scale_labels, visible


def read_infos(data_set: Any) -> list[dict[str, Any]]:
    """Return a data set's entries for each of its images, to which :func:`picture` can be applied.

    The ``instances`` of COCO's files are as they are annotated, with their ``area``: mmdet leaves out those without
    area or outside of their image.
    """
    return [info for leaf in leaves(data_set) for info in _read_leaf(leaf)]


def _read_leaf(data_set: Any) -> list[dict[str, Any]]:
    reader = find_reader(data_set)
    loader = reader if reads_raw(reader) else None  # arrays that Pillow may not show
    also = dict(backend_args=getattr(data_set, 'backend_args', None), loader=loader)
    infos = [dict(data_set.get_data_info(i), **also) for i in range(len(data_set))]
    if reads_coco(type(data_set)):
        with prints_to_log():  # pycocotools prints its progress
            objects = COCO(data_set.ann_file).imgToAnns
        for info in infos:
            info['instances'] = [
                dict(bbox=[x, y, x + width, y + height], bbox_label=data_set.cat2label[instance['category_id']],
                     ignore_flag=instance.get('iscrowd', 0), mask=instance.get('segmentation'), area=instance['area'])
                for instance in objects[info['img_id']] if instance['category_id'] in data_set.cat2label
                for x, y, width, height in [instance['bbox']]]
    return infos


class CollectHook(Hook):
    """Keeps one record per tested image, for the module of the model's task.

    Args:
        data_set: the tested data set, built and complete; its annotations are in the images' own pixels.

    Attributes:
        records: one dict per image, see the ``diagnose`` functions.
        task: see :func:`cvt_dense.models.task.task_of`.
        left_out: images of a classifier that have no label or cannot be read.

    Raises:
        UserError: no image has an annotation.
    """

    def __init__(self, data_set: Any):
        self.data_set = data_set
        self.classes = data_set.metainfo.get('classes') or ()
        self.palette = choose_palette(self.classes)
        self.records: list[dict[str, Any]] = []
        self.task: str | None = None
        self.left_out: list[str] = []
        infos = read_infos(data_set)
        if not any(info.get('label', -1) >= 0 or info.get('instances') or info.get('seg_map_path') for info in infos):
            raise UserError(f'none of the {len(infos)} images of the data has an annotation, without which mistakes '
                            'cannot be found. Give other data with --split or --data-root.')
        self._infos = {(image_name(info), info.get('img_id')): info for info in infos}

    def before_test(self, runner: Runner) -> None:
        self.task = task_of(runner.model)

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                        outputs: Sequence[Any] | None = None) -> None:
        record_of = dict(classification=self._classification, segmentation=self._segmentation).get(
            self.task, self._detection)
        for sample in outputs or ():
            if self.task == 'classification':
                path, img_id = sample['path'], None
                if sample.get('label', -1) < 0:
                    self.left_out.append(path)
                    continue
            else:
                path, img_id = sample.img_path, None if self.task == 'segmentation' else sample.img_id
            self.records.append(dict(record_of(sample), path=path, info=self._infos[path, img_id]))

    def _classification(self, sample: dict[str, Any]) -> dict[str, Any]:
        return dict(label=int(sample['label']), probabilities=sample['logits'].double().softmax(0).cpu().numpy())

    def _segmentation(self, sample: Any) -> dict[str, Any]:
        prediction, annotation = (
            sample.get(key).data[0].long().cpu().numpy() for key in ('pred_sem_seg', 'gt_sem_seg'))
        ignored = leaves(self.data_set)[0].ignore_index
        # Compressed, because the label maps of thousands of images do not fit into memory.
        maps = [cv2.imencode('.png', label_map.astype(np.uint16))[1] for label_map in (annotation, prediction)]
        return dict(matrix=segmentation.count(prediction, annotation, len(self.classes), ignored), maps=maps)

    def _detection(self, sample: Any) -> dict[str, Any]:
        height, width = sample.ori_shape
        instances = self._infos[sample.img_path, sample.img_id]['instances']
        predicted = sample.pred_instances.numpy()
        masks = [m if isinstance(m, dict) else mask_utils.encode(np.asfortranarray(m, np.uint8))
                 for m in predicted.get('masks', ())]
        truth = [run_lengths(instance['mask'], height, width) if instance.get('mask') else None
                 for instance in instances]
        with_masks = all(truth) and bool(masks or not len(predicted['scores']))
        boxes = np.array([instance['bbox'] for instance in instances], float).reshape(-1, 4)
        sizes = (boxes[:, 2:] - boxes[:, :2]).prod(1)
        areas = [instance.get('area', size) for instance, size in zip(instances, sizes)]
        return dict(
            size=(height, width), gt_boxes=boxes, gt_areas=areas,
            gt_labels=[instance['bbox_label'] for instance in instances],
            gt_crowd=[instance['ignore_flag'] for instance in instances],
            gt_masks=truth if with_masks else [], boxes=predicted['bboxes'], labels=predicted['labels'],
            scores=predicted['scores'], masks=masks if with_masks else [])

    def picture_of(self, number: int) -> Image.Image:
        """Return the picture of a record: of a classifier the image; otherwise annotation and prediction."""
        record = self.records[number]
        image = picture(record['info'])
        if self.task == 'classification':
            return side_by_side(image)
        if self.task == 'segmentation':
            return side_by_side(*(thumbnail(image, cv2.imdecode(label_map, cv2.IMREAD_UNCHANGED), self.palette,
                                            self.classes) for label_map in record['maps']))
        shown = record['shown']
        truth = sv.Detections(record['gt_boxes'], class_id=np.array(record['gt_labels'], int))
        predicted = sv.Detections(record['boxes'], class_id=record['labels'], confidence=record['scores'])[shown]
        return side_by_side(*(thumbnail(image, objects, self.palette, self.classes) for objects in (truth, predicted)))

    def diagnose(self, report: Report) -> None:
        """Add the task's evaluation of the records to a report."""
        for i, record in enumerate(self.records):
            report.add_image(record['path'], partial(self.picture_of, i))
        if self.task != 'classification':
            report.legend = {name: list(color) for name, color in zip(self.classes, self.palette)}
        if self.left_out:
            report.summary.append(f'{len(self.left_out)} images cannot be read, or have no label, and are left out: '
                                  f'{listed(self.left_out)}.')
        module = dict(classification=classification, segmentation=segmentation).get(self.task, detection)
        module.diagnose(report, self.records, self.classes)


def picture(info: dict[str, Any]) -> Image.Image:
    """Return the upright RGB image of an entry of :func:`read_infos`, or a grey square where it cannot be read.

    Of an array, it is what :func:`.pictures.visible` shows.
    """
    try:
        if info['loader']:
            return Image.fromarray(visible(info['loader'](dict(info))['img']))
        return open_image(open_file(info, info['backend_args']))
    except Exception:  # Pillow raises many types for broken files, and a report must not end with one picture
        return Image.new('RGB', (64, 64), 'grey')


def thumbnail(image: Image.Image, labels: sv.Detections | np.ndarray, palette: Sequence[Sequence[int]],
              classes: Sequence[str]) -> Image.Image:
    """Return an image, ``SIDE`` pixels long, with objects or a label map drawn on it.

    Args:
        image: RGB image.
        labels: objects in its pixels, or a label map.
        palette: RGB colour of each class.
        classes: names, which are written beside objects.
    """
    factor = SIDE / max(image.size)
    size = tuple(max(round(factor * side), 1) for side in image.size)
    labels = scale_labels(labels, image.size, size)
    return Image.fromarray(draw_labels(np.asarray(image.resize(size)), labels, classes.__getitem__, palette,
                                       isinstance(labels, sv.Detections)))
