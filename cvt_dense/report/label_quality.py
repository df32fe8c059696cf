"""Score how likely the annotation of an image is right, by the predictions of a network that did not learn it.

The formulas are those of ObjectLab (Tkachenko et al. 2023) for objects and of Lad and Mueller 2023 for label maps, both
with cleanlab's constants. Lower scores are more likely mistakes.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pycocotools import mask as coco_mask
from supervision import box_iou_batch
from torch import Tensor

from .page import Report

TEMPERATURE = 0.1  # temperature of the softmin over the boxes or pixels of an image
IOU_WEIGHT, DISTANCE_FACTOR = 0.9, 0.1  # similarity of two boxes: their IoU, and exp(-factor * pixels between centres)
LOCATED = 0.5  # least score of a detection that shows where an annotated box should be, ...
CERTAIN = 0.95  # ... and of one that shows that an object has no annotation, or another class


def softmin(scores: np.ndarray) -> float:
    """Return a mean in which low scores (N, ) count most, or 1 if there are none."""
    weights = np.exp(-(scores - scores.min(initial=1.)) / TEMPERATURE)
    return float(weights @ scores / weights.sum()) if len(scores) else 1.


def of_objects(record: dict[str, Any]) -> float:
    """Return the score of an image's annotated objects, from 0 to 1.

    It is the geometric mean of three scores: of certain detections without an annotation, of annotated objects with a
    certain detection of another class, and of annotated objects whose detection is elsewhere. Masks are compared
    if the annotations and the detections have them, otherwise boxes.

    Args:
        record: of an image, see :func:`cvt_dense.report.detection.diagnose`.
    """
    known = np.equal(record['gt_crowd'], 0)
    truth, labels = record['gt_boxes'][known].reshape(-1, 4), np.asarray(record['gt_labels'])[known]
    boxes, scores = np.asarray(record['boxes']).reshape(-1, 4), np.asarray(record['scores'])
    iou = np.zeros((len(truth), len(boxes)))
    if iou.size and record['masks'] and record['gt_masks']:
        annotated = [mask for mask, counts in zip(record['gt_masks'], known) if counts]
        iou = np.asarray(coco_mask.iou(record['masks'], annotated, [0] * len(annotated))).T
    elif iou.size:
        iou = box_iou_batch(truth, boxes)
    centres, others = ((box[:, :2] + box[:, 2:]) / 2 for box in (truth, boxes))
    distance = np.linalg.norm(centres[:, None] - others, axis=2)
    similarity = IOU_WEIGHT * iou + (1 - IOU_WEIGHT) * np.exp(-DISTANCE_FACTOR * distance)
    same = labels[:, None] == np.asarray(record['labels'])
    overlooked = np.where(same, similarity, 0).max(0, initial=0)[(scores >= CERTAIN) & ~(iou > 0).any(0)]
    swapped = 1 - np.where(~same & (scores > CERTAIN), similarity, 0).max(1, initial=0)
    located = np.where(same & (scores > LOCATED) & (iou > 0), similarity, 0).max(1, initial=0)
    located = np.where(located, located, 1)
    return float(np.prod([softmin(kind) for kind in (overlooked, swapped, located)]) ** (1 / 3))


def of_label_map(logits: Tensor, annotation: Tensor, known: Tensor) -> float:
    """Return the score of an image's label map: the softmin of the probabilities of the annotated classes.

    Args:
        logits: (C, H, W).
        annotation: label map (H, W), int64.
        known: bool (H, W), the pixels that count.
    """
    annotated = logits.softmax(0).gather(0, annotation.clamp(max=len(logits) - 1)[None])[0][known].double()
    return float(torch.softmax(-annotated / TEMPERATURE, 0) @ annotated) if len(annotated) else 1.


def add_suspects(report: Report, scores: Sequence[float], note: str = '') -> None:
    """Add a section with the images of the lowest scores; ``note`` follows its first sentence."""
    report.add_section('Labels that may be wrong', f'The network must not have been trained on these images.{note}')
    report.add_pictures(np.argsort(scores, kind='stable'),
                        'Annotation and prediction of the images whose annotations have the lowest quality.')
