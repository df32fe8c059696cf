"""Collect the predictions of a model for each image of a data set while it is tested."""
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import supervision as sv
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image, ImageOps
from pycocotools.coco import COCO

from ..annotations.data_sets import reads_coco
from ..console import prints_to_log
from ..engine.data_sets import find_reader, leaves
from ..errors import UserError, listed
from ..images import open_image, reads_raw
from ..inference.palette import choose_palette
from ..models.task import task_of
from ..pretraining.listing import image_name, open_file
from . import classification, detection, segmentation
from .page import Report
from .pictures import draw_labels, grid, scale_labels, visible

SIDE = 320  # longest side in pixels of one half of a picture


def read_infos(data_set: Any) -> list[dict[str, Any]]:
    """Return a data set's entries for each of its images, to which :func:`picture` can be applied.

    The ``instances`` of COCO's files are as they are annotated: mmdet leaves out those without area or outside of their
    image.
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
                     ignore_flag=instance.get('iscrowd', 0))
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
            info = self._infos[path, img_id]
            self.records.append(dict(record_of(sample, info), info=info))

    def _classification(self, sample: dict[str, Any], info: dict[str, Any]) -> dict[str, Any]:
        return dict(label=int(sample['label']), probabilities=sample['logits'].double().softmax(0).cpu().numpy())

    def _segmentation(self, sample: Any, info: dict[str, Any]) -> dict[str, Any]:
        annotation, prediction = (
            getattr(sample, key).data[0].long().cpu().numpy() for key in ('gt_sem_seg', 'pred_sem_seg'))
        ignored = leaves(self.data_set)[0].ignore_index
        # Compressed, because the label maps of thousands of images do not fit into memory.
        maps = [cv2.imencode('.png', label_map.astype(np.uint16))[1] for label_map in (annotation, prediction)]
        return dict(matrix=segmentation.count(prediction, annotation, len(self.classes), ignored), maps=maps)

    def _detection(self, sample: Any, info: dict[str, Any]) -> dict[str, Any]:
        boxes, labels, crowd = (np.array([instance[key] for instance in info['instances']], kind) for key, kind in (
            ('bbox', float), ('bbox_label', int), ('ignore_flag', bool)))
        found = sample.pred_instances.numpy()
        return dict(truth=sv.Detections(boxes.reshape(-1, 4), class_id=labels, data=dict(crowd=crowd)),
                    predicted=sv.Detections(found.bboxes, class_id=found.labels, confidence=found.scores))

    def picture_of(self, number: int) -> Image.Image:
        """Return the picture of a record: of a classifier the image; otherwise annotation and prediction."""
        record = self.records[number]
        image = picture(record['info'])
        shown = ImageOps.contain(image, (SIDE, SIDE))
        if self.task == 'classification':
            return shown
        labels = ([cv2.imdecode(label_map, cv2.IMREAD_UNCHANGED) for label_map in record['maps']]
                  if self.task == 'segmentation' else [record['truth'], record['predicted']])
        return Image.fromarray(grid([
            (title, draw_labels(np.asarray(shown), scale_labels(drawn, image.size, shown.size),
                                self.classes.__getitem__, self.palette))
            for title, drawn in zip(('annotation', 'prediction'), labels)], 2))

    def diagnose(self, title: str) -> Report:
        """Return a report of the task's evaluation of the records."""
        report = Report(title, [image_name(record['info']) for record in self.records], self.picture_of)
        if self.left_out:
            report.summary.append(f'{len(self.left_out)} images cannot be read, or have no label, and are left out: '
                                  f'{listed(self.left_out)}.')
        module = dict(classification=classification, segmentation=segmentation).get(self.task, detection)
        module.diagnose(report, self.records, self.classes)
        return report


def picture(info: dict[str, Any]) -> Image.Image:
    """Return the upright RGB image of an entry of :func:`read_infos`, or a grey square where it cannot be read.

    Of an array, it is what :func:`.pictures.visible` shows.
    """
    try:
        if info['loader']:
            return Image.fromarray(visible(info['loader'](dict(info))['img']))
        image = open_image(open_file(info, info['backend_args']))
        image.load()  # a truncated file raises here
        return image
    except Exception:  # Pillow raises many types for broken files, and a report must not end with one picture
        return Image.new('RGB', (64, 64), 'grey')
