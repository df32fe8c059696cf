"""Gathers what a model predicts for each image of a data set while it is tested."""
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import supervision as sv
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from PIL import Image, ImageOps
from pycocotools import mask as mask_utils

from ..datasets.listing import image_name, open_file
from . import classification, detection, segmentation
from .page import Report, side_by_side


class CollectHook(Hook):
    """Keeps one record per tested image, for the module of the model's task.

    Args:
        data_set: what is tested, built and complete; its annotations are in the images' own pixels.

    Attributes:
        records: one dict per image, see the ``diagnose`` functions.
        task: the module of the task: :mod:`classification`, :mod:`detection` or :mod:`segmentation`.
        unreadable: files that could not be read, which have no record.
    """

    def __init__(self, data_set: Any):
        self.data_set = data_set
        self.records: list[dict[str, Any]] = []
        self.unreadable: list[str] = []
        self.task: Any = None
        self._features: list[torch.Tensor] = []
        self._index = {}

    def before_test(self, runner: Runner) -> None:
        model = runner.model
        infos = (self.data_set.get_data_info(i) for i in range(len(self.data_set)))
        self._index = {image_name(info): i for i, info in enumerate(infos)}
        if hasattr(model, 'num_classes') and hasattr(model, 'backbone'):
            model.backbone.register_forward_hook(lambda module, args, output: self._features.extend(output[0].float()))

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                        outputs: Sequence[Any] | None = None) -> None:
        for sample in outputs or ():
            if isinstance(sample, dict):
                self.task = classification
                self._add_classification(sample)
            elif 'pred_sem_seg' in sample:
                self.task = segmentation
                self._add_segmentation(sample)
            else:
                self.task = detection
                self._add_detection(sample)
        self._features.clear()

    def _add_classification(self, sample: dict[str, Any]) -> None:
        feature = self._features.pop(0).numpy() if self._features else sample['logits'].numpy()
        if sample.get('label', -1) < 0:
            self.unreadable.append(sample['path'])
            return
        self.records.append(dict(path=sample['path'], label=int(sample['label']), feature=feature,
                                 probabilities=sample['logits'].softmax(0).numpy()))

    def _add_segmentation(self, sample: Any) -> None:
        prediction = sample.pred_sem_seg.data[0].cpu().numpy()
        annotation = sample.gt_sem_seg.data[0].cpu().numpy()
        record = segmentation.count(prediction, annotation, len(self.data_set.metainfo['classes']),
                                    self.data_set.ignore_index)
        # Compressed, because the label maps of thousands of images do not fit into memory.
        record.update(path=sample.img_path, prediction=cv2.imencode('.png', prediction.astype(np.uint8))[1],
                      annotation=cv2.imencode('.png', annotation.astype(np.uint8))[1])
        self.records.append(record)

    def _add_detection(self, sample: Any) -> None:
        info = self.data_set.get_data_info(self._index[sample.img_path])
        height, width = sample.ori_shape
        instances = info['instances']
        found = sample.pred_instances.numpy()
        masks = [m if isinstance(m, dict) else mask_utils.encode(np.asfortranarray(m, np.uint8))
                 for m in found.get('masks', ())]
        truth = [_rle(one.get('mask'), height, width) for one in instances]
        boxes = np.array([one['bbox'] for one in instances], np.float32).reshape(-1, 4)
        with_masks = all(mask is not None for mask in truth) and bool(masks or not len(found['scores']))
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], 1)
        self.records.append(dict(
            path=sample.img_path, size=(height, width), gt_boxes=boxes,
            gt_labels=[one['bbox_label'] for one in instances],
            gt_crowd=[one.get('ignore_flag', 0) for one in instances],
            gt_areas=[float(mask_utils.area(mask)) for mask in truth] if with_masks else areas,
            gt_masks=truth if with_masks else [], boxes=found['bboxes'], labels=found['labels'],
            scores=found['scores'], masks=masks if with_masks else []))

    def draw(self, number: int) -> Image.Image:
        """Return the picture of a record: the image, or annotation and prediction side by side."""
        record = self.records[number]
        if self.task is classification:
            info = self.data_set.get_data_info(self._index[record['path']])
            return side_by_side(read_image(open_file(info, self.data_set.backend_args)))
        image = read_image(record['path'])
        palette = [tuple(color) for color in self.data_set.metainfo.get('palette') or ()] or None
        if self.task is segmentation:
            maps = [cv2.imdecode(record[key], cv2.IMREAD_UNCHANGED) for key in ('annotation', 'prediction')]
            return side_by_side(*(overlay(image, label_map, palette) for label_map in maps))
        shown = np.asarray(record['scores']) >= 0.3
        return side_by_side(
            annotate(image, record['gt_boxes'], record['gt_labels'], self.data_set.metainfo['classes']),
            annotate(image, record['boxes'][shown], record['labels'][shown], self.data_set.metainfo['classes'],
                     record['scores'][shown]))

    def diagnose(self, report: Report) -> dict[str, Any]:
        """Add everything that is known of the records to a report; return what a comparison needs."""
        for record in self.records:
            report.add_image(str(record['path']))
        if self.unreadable:
            report.summary.append(f'{len(self.unreadable)} images cannot be read: {", ".join(self.unreadable[:5])}.')
        return self.task.diagnose(report, self.records, self.data_set.metainfo['classes'])


def _rle(mask: Any, height: int, width: int) -> dict[str, Any] | None:
    """Return COCO's polygons or RLE as a compressed RLE."""
    if not mask:
        return None
    if isinstance(mask, list):
        return mask_utils.merge(mask_utils.frPyObjects(mask, height, width))
    return mask if isinstance(mask['counts'], (bytes, str)) else mask_utils.frPyObjects(mask, height, width)


def read_image(file: Any) -> Image.Image:
    """Return an upright RGB image of a path or open file, or a grey square where it cannot be read."""
    try:
        return ImageOps.exif_transpose(Image.open(file)).convert('RGB')
    except Exception:  # Pillow raises many types for broken files, and a report must not end with one picture
        return Image.new('RGB', (64, 64), 'grey')


def overlay(image: Image.Image, label_map: np.ndarray, palette: Sequence[tuple[int, int, int]] | None) -> Image.Image:
    """Return an image with a label map (H, W) over it; values without a colour stay black."""
    colors = np.zeros((256, 3), np.uint8)
    known = palette or [sv.ColorPalette.DEFAULT.by_idx(k).as_rgb() for k in range(255)]
    colors[:len(known)] = known
    return Image.blend(image.resize(label_map.shape[::-1]), Image.fromarray(colors[label_map]), 0.55)


def annotate(image: Image.Image, boxes: Any, labels: Any, classes: Sequence[str], scores: Any = None) -> Image.Image:
    """Return an image with boxes (N, 4), their classes and scores."""
    detections = sv.Detections(np.asarray(boxes, np.float32).reshape(-1, 4),
                               class_id=np.asarray(labels, int).reshape(-1))
    texts = [classes[label] if scores is None else f'{classes[label]} {scores[i]:.2f}'
             for i, label in enumerate(detections.class_id)]
    scene = sv.BoxAnnotator(thickness=2).annotate(image.copy(), detections)
    return sv.LabelAnnotator(text_scale=0.4, text_padding=2).annotate(scene, detections, labels=texts)
