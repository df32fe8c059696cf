"""Collect the predictions of a model for each image of a data set while it is tested."""
import contextlib
import io
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

from ..engine.samplers import leaves
from ..errors import UserError
from ..images import open_image
from ..inference.palette import choose_palette, find_font
from ..pretraining.listing import image_name, open_file
from . import classification, detection, segmentation
from .label_quality import of_label_map
from .page import SIDE, Report, side_by_side


def read_infos(data_set: Any) -> list[dict[str, Any]]:
    """Return a data set's entries for each of its images, to which :func:`picture` can be applied.

    The ``instances`` of COCO's files are as they are annotated, with their ``area``: mmdet leaves out those without
    area or outside of their image.
    """
    return [info for leaf in leaves(data_set) for info in _read_leaf(leaf)]


def _read_leaf(data_set: Any) -> list[dict[str, Any]]:
    steps = getattr(getattr(data_set, 'pipeline', None), 'transforms', ())
    loader = next((step for step in steps if type(step).__name__.startswith('LoadImageFromN')), None)  # of arrays
    also = dict(backend_args=getattr(data_set, 'backend_args', None), loader=loader)
    infos = [dict(data_set.get_data_info(i), **also) for i in range(len(data_set))]
    if hasattr(data_set, 'cat2label'):
        with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
            objects = COCO(data_set.ann_file).imgToAnns
        for info in infos:
            info['instances'] = [
                dict(bbox=[x, y, x + width, y + height], bbox_label=data_set.cat2label[one['category_id']],
                     ignore_flag=one.get('iscrowd', 0), mask=one.get('segmentation'), area=one['area'])
                for one in objects[info['img_id']] if one['category_id'] in data_set.cat2label
                for x, y, width, height in [one['bbox']]]
    return infos


def name_unreadable(report: Report, paths: Sequence[str]) -> None:
    """Add a sentence with the number and names of images that are left out to a report."""
    if paths:
        report.summary.append(f'{len(paths)} images cannot be read, or have no label, and are left out: '
                              f'{", ".join(paths[:5])}{" and others" if len(paths) > 5 else ""}.')


class CollectHook(Hook):
    """Keeps one record per tested image, for the module of the model's task.

    Args:
        data_set: the tested data set, built and complete; its annotations are in the images' own pixels.

    Attributes:
        records: one dict per image, see the ``diagnose`` functions.
        task: the module of the task: :mod:`classification`, :mod:`detection` or :mod:`segmentation`.
        left_out: images of a classifier that have no label or cannot be read.

    Raises:
        UserError: no image has an annotation.
    """

    def __init__(self, data_set: Any):
        self.data_set = data_set
        self.classes = data_set.metainfo.get('classes') or ()
        self.palette = choose_palette(self.classes)
        self.records: list[dict[str, Any]] = []
        self.task: Any = None
        self.left_out: list[str] = []
        infos = read_infos(data_set)
        if not any(info.get('label', -1) >= 0 or info.get('instances') or info.get('seg_map_path') for info in infos):
            raise UserError(f'none of the {len(infos)} images of the data has an annotation, without which mistakes '
                            'cannot be found. Give other data with --split or --data-root.')
        self._infos = {(image_name(info), info.get('img_id')): info for info in infos}

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                        outputs: Sequence[Any] | None = None) -> None:
        for sample in outputs or ():
            if isinstance(sample, dict):
                self.task, path, img_id = classification, sample['path'], None
                if sample.get('label', -1) < 0:
                    self.left_out.append(path)
                    continue
                record = self._classification(sample)
            elif 'pred_sem_seg' in sample:
                self.task, path, img_id, record = segmentation, sample.img_path, None, self._segmentation(sample)
            else:
                self.task, path, img_id, record = detection, sample.img_path, sample.img_id, self._detection(sample)
            self.records.append(dict(record, path=path, info=self._infos[path, img_id]))

    def _classification(self, sample: dict[str, Any]) -> dict[str, Any]:
        return dict(label=int(sample['label']),
                    probabilities=sample['logits'].double().softmax(0).cpu().numpy())

    def _segmentation(self, sample: Any) -> dict[str, Any]:
        prediction, annotation = (
            sample.get(key).data[0].long().cpu().numpy() for key in ('pred_sem_seg', 'gt_sem_seg'))
        ignored = leaves(self.data_set)[0].ignore_index
        record = dict(matrix=segmentation.count(prediction, annotation, len(self.classes), ignored))
        logits, labels = sample.get('seg_logits'), sample.gt_sem_seg.data[0].long()
        if logits is not None and len(logits.data) == len(self.classes):
            known = (labels != ignored) & (labels < len(self.classes))
            record['quality'] = of_label_map(logits.data, labels, known)
        # Compressed, because the label maps of thousands of images do not fit into memory.
        maps = [cv2.imencode('.png', label_map.astype(np.uint16))[1] for label_map in (annotation, prediction)]
        return dict(record, maps=maps)

    def _detection(self, sample: Any) -> dict[str, Any]:
        height, width = sample.ori_shape
        instances = self._infos[sample.img_path, sample.img_id]['instances']
        found = sample.pred_instances.numpy()
        masks = [m if isinstance(m, dict) else mask_utils.encode(np.asfortranarray(m, np.uint8))
                 for m in found.get('masks', ())]
        truth = [to_rle(one.get('mask'), height, width) for one in instances]
        with_masks = all(truth) and bool(masks or not len(found['scores']))
        boxes = np.array([one['bbox'] for one in instances], float).reshape(-1, 4)
        areas = [one.get('area', area) for one, area in zip(instances, np.prod(boxes[:, 2:] - boxes[:, :2], 1))]
        return dict(
            size=(height, width), gt_boxes=boxes, gt_areas=areas,
            gt_labels=[one['bbox_label'] for one in instances], gt_crowd=[one['ignore_flag'] for one in instances],
            gt_masks=truth if with_masks else [], boxes=found['bboxes'], labels=found['labels'],
            scores=found['scores'], masks=masks if with_masks else [])

    def draw(self, number: int) -> Image.Image:
        """Return the picture of a record: of a classifier the image; otherwise annotation and prediction."""
        record = self.records[number]
        image = picture(record['info'])
        if self.task is classification:
            return side_by_side(image)
        if self.task is segmentation:
            return side_by_side(*(overlay(image, cv2.imdecode(label_map, cv2.IMREAD_UNCHANGED), self.palette)
                                  for label_map in record['maps']))
        shown, look = record['shown'], (self.classes, self.palette)
        return side_by_side(annotate(image, record['gt_boxes'], record['gt_labels'], *look),
                            annotate(image, record['boxes'][shown], record['labels'][shown], *look,
                                     record['scores'][shown]))

    def diagnose(self, report: Report) -> None:
        """Add the task's evaluation of the records to a report."""
        for i, record in enumerate(self.records):
            report.add_image(record['path'], partial(self.draw, i))
        if self.task is not classification:
            report.legend = {name: list(color) for name, color in zip(self.classes, self.palette)}
        name_unreadable(report, self.left_out)
        self.task.diagnose(report, self.records, self.classes)


def to_rle(mask: Any, height: int, width: int) -> dict[str, Any] | None:
    """Return a mask as COCO's compressed RLE, or None if there is no mask.

    Args:
        mask: COCO's polygons or RLE.
        height, width: size of the image in pixels.
    """
    if not mask or isinstance(mask, dict) and isinstance(mask['counts'], (bytes, str)):
        return mask or None
    found = mask_utils.frPyObjects(mask, height, width)
    return mask_utils.merge(found) if isinstance(mask, list) else found


def load_image(info: dict[str, Any]) -> Image.Image:
    """Return an image in RGB; of an array the first three channels, or the first, stretched to 8 bits."""
    if not info['loader']:
        return open_image(open_file(info, info['backend_args']))
    pixels = np.atleast_3d(info['loader'](dict(info))['img']).astype(np.float32)
    pixels = pixels[..., [0, 1, 2] if pixels.shape[2] >= 3 else [0, 0, 0]]
    return Image.fromarray(((pixels - pixels.min()) / max(np.ptp(pixels), 1e-9) * 255).astype(np.uint8))


def picture(info: dict[str, Any]) -> Image.Image:
    """Return the upright RGB image of an entry of :func:`read_infos`, or a grey square where it cannot be read."""
    try:
        return load_image(info)
    except Exception:  # Pillow raises many types for broken files, and a report must not end with one picture
        return Image.new('RGB', (64, 64), 'grey')


def overlay(image: Image.Image, label_map: np.ndarray, palette: Sequence[Sequence[int]]) -> Image.Image:
    """Return an image with a label map drawn over it.

    Args:
        image: RGB image.
        label_map: (H, W) of class numbers; values without a colour stay black.
        palette: RGB colour of each class.
    """
    colors = np.zeros((2**16, 3), np.uint8)
    colors[:len(palette)] = palette
    return Image.blend(image.resize(label_map.shape[::-1]), Image.fromarray(colors[label_map]), 0.55)


def annotate(image: Image.Image, boxes: Any, labels: Any, classes: Sequence[str], palette: Sequence[Sequence[int]],
             scores: Any = None, masks: np.ndarray | None = None) -> Image.Image:
    """Return an image, ``SIDE`` pixels long, with boxes, class names, scores and masks drawn on it.

    Args:
        image: RGB image.
        boxes: (N, 4), corners in pixels.
        labels: (N, ).
        classes: names.
        palette: RGB colour of each class.
        scores: (N, ) or None.
        masks: bool (N, H, W) or None.
    """
    detections = sv.Detections(np.array(boxes, np.float32).reshape(-1, 4), mask=masks,
                               class_id=np.asarray(labels, int).reshape(-1))
    colors = sv.ColorPalette([sv.Color(*map(int, color)) for color in palette])
    texts = [classes[label] if scores is None else f'{classes[label]} {scores[i]:.2f}'
             for i, label in enumerate(detections.class_id)]
    scene = image.copy() if masks is None else sv.MaskAnnotator(color=colors).annotate(image.copy(), detections)
    scale = SIDE / max(image.size)  # lines and letters are drawn in the size that the page shows
    scene = scene.resize([max(round(side * scale), 1) for side in image.size])
    detections.xyxy *= scale
    scene = sv.BoxAnnotator(color=colors, thickness=2).annotate(scene, detections)
    return sv.RichLabelAnnotator(color=colors, text_color=sv.Color.BLACK, font_path=find_font(texts), font_size=11,
                                 text_padding=1).annotate(scene, detections, labels=texts)
