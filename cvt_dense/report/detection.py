"""Report the errors of a detector."""
import contextlib
import io
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import supervision as sv
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import precision_recall_curve

from .page import Cell, Report, largest


def evaluate(records: Sequence[dict[str, Any]], classes: Sequence[str]) -> COCOeval:
    """Return pycocotools' accumulated evaluation of objects of all sizes.

    Class ``k`` is category ``k + 1``, and record ``i`` image ``i + 1``.

    Args:
        records: see :func:`diagnose`.
        classes: class names.
    """
    annotations, results, ids = [], [], itertools.count(1)
    for number, record in enumerate(records, 1):
        objects, found = record['truth'], record['predicted']
        for box, label, crowd in zip(_xywh(objects), objects.class_id, objects.data['crowd']):
            annotations.append(dict(id=next(ids), image_id=number, category_id=int(label) + 1, bbox=box,
                                    area=box[2] * box[3], iscrowd=int(crowd)))
        for box, label, score in zip(_xywh(found), found.class_id, found.confidence):
            results.append(dict(image_id=number, category_id=int(label) + 1, bbox=box, score=float(score)))
    truth = COCO()
    truth.dataset = dict(images=[dict(id=number + 1) for number in range(len(records))], annotations=annotations,
                         categories=[dict(id=k + 1, name=name) for k, name in enumerate(classes)])
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results) if results else COCO(), 'bbox')
        evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0, 1e10]], ['all']
        evaluation.evaluate()
        evaluation.accumulate()
    return evaluation


def _xywh(objects: sv.Detections) -> list[list[float]]:
    return sv.xyxy_to_xywh(objects.xyxy.astype(float)).tolist()


def average_precision(evaluation: COCOeval, iou: int | slice = slice(None), k: int | slice = slice(None)) -> float:
    """Return the average precision of a class or all, NaN without objects.

    Args:
        evaluation: see :func:`evaluate`.
        iou: place of the IoU among 0.5, 0.55 to 0.95, or all.
        k: class, or all.
    """
    precision = evaluation.eval['precision'][iou, :, k, 0, -1]
    return float(precision[precision > -1].mean()) if (precision > -1).any() else float('nan')


def match(evaluation: COCOeval) -> np.ndarray:
    """Return pycocotools' matches at IoU 0.5, without detections of crowds, the highest score first.

    Returns:
        an array (D, 5) with class, image, score, whether it is a hit, and its number among those of all records.
    """
    rows = []
    for number, entry in enumerate(evaluation.evalImgs):
        for i, score, hit, ignored in zip(entry['dtIds'], entry['dtScores'], entry['dtMatches'][0],
                                          entry['dtIgnore'][0]) if entry else ():
            if not ignored:
                rows.append((*divmod(number, len(evaluation.params.imgIds)), score, hit > 0, i - 1))
    detections = np.array(rows, float).reshape(-1, 5)
    return detections[np.argsort(-detections[:, 2], kind='stable')]


def best_threshold(detections: np.ndarray, objects: int) -> tuple[float, float, float, float]:
    """Return the score with the best F1, and precision, recall and F1 there; NaN if no detection is a hit.

    Args:
        detections: see :func:`match`.
        objects: number of annotated ones.
    """
    if not detections[:, 3].any():
        return (float('nan'), ) * 4
    precision, recall, scores = precision_recall_curve(detections[:, 3], detections[:, 2])
    recall = recall * detections[:, 3].sum() / objects  # among all objects, not only those that some detection hits
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    return float(scores[best]), float(precision[best]), float(recall[best]), float(f1[best])


def confusions(records: Sequence[dict[str, Any]], detections: np.ndarray, classes: int) -> np.ndarray:
    """Return supervision's confusion matrix of each image at IoU 0.5, without crowds.

    Args:
        records: see :func:`diagnose`.
        detections: see :func:`match`.
        classes: number of them.

    Returns:
        The entries above 0 of all matrices, as rows (annotated class, detected class, image, number); the class after
        the last one is the background.
    """
    boxes, entries = np.concatenate([record['predicted'].xyxy for record in records]), []
    for i, record in enumerate(records):
        found, objects = detections[detections[:, 1] == i], record['truth'][~record['truth'].data['crowd']]
        matrix = sv.ConfusionMatrix.evaluate_detection_batch(
            np.column_stack((boxes[found[:, 4].astype(int)], found[:, [0, 2]])),
            np.column_stack((objects.xyxy, objects.class_id)), classes, conf_threshold=0., iou_threshold=0.5)
        entries += [(row, column, i, matrix[row, column]) for row, column in np.argwhere(matrix)]
    return np.array(entries, int).reshape(-1, 4)


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add AP, confusion and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``truth`` and ``predicted``, which are ``supervision.Detections``; ``truth``
            has ``data['crowd']``, bool. ``predicted`` loses the detections below the threshold.
        classes: class names.
    """
    evaluation = evaluate(records, classes)
    detections = match(evaluation)
    labels = np.concatenate([record['truth'].class_id[~record['truth'].data['crowd']] for record in records])
    report.summary.append(
        f'AP is {100 * average_precision(evaluation):.1f} %, AP50 {100 * average_precision(evaluation, 0):.1f} % of '
        f'{len(labels)} objects in {len(records)} images.')
    threshold, _, _, f1 = best_threshold(detections, len(labels))
    if np.isnan(threshold):
        threshold = 0.3
        report.summary.append(f'None of the {len(detections)} detections is a hit at IoU 0.5. Train the network for '
                              'longer, or check its classes.')
    else:
        report.summary.append(f'The best F1 is {f1:.3f}, of the detections with scores from {threshold:.3f}. They are '
                              'the detections in the pictures, and among missed and false objects below.')
    above = detections[detections[:, 2] >= threshold]
    rows, columns, images, numbers = confusions(records, above, len(classes)).T
    for record in records:
        record['predicted'] = record['predicted'][record['predicted'].confidence >= threshold]

    def cell(chosen: np.ndarray) -> Cell:
        return Cell(numbers[chosen].sum(), largest(np.bincount(images[chosen], numbers[chosen])))

    report.add_section('Classes', f'Average precision (AP) by pycocotools; detected, missed and false objects at score '
                       f'{threshold:.3f} and IoU 0.5; and the best F1 of each class, with its threshold.')
    report.add_table(
        ['class', 'objects', 'AP', 'AP50', 'AP75', 'detected', 'missed', 'false', 'threshold', 'precision', 'recall',
         'F1'],
        [[name, (labels == k).sum(), *(average_precision(evaluation, iou, k) for iou in (slice(None), 0, 5)),
          cell((rows == k) & (columns == k)), cell((rows == k) & (columns != k)), cell((rows != k) & (columns == k)),
          *best_threshold(detections[detections[:, 0] == k], (labels == k).sum())] for k, name in enumerate(classes)])
    matrix = np.zeros((len(classes) + 1, ) * 2, int)
    np.add.at(matrix, (rows, columns), numbers)
    report.add_confusion(matrix, [*classes, 'background'],
                         lambda row, column: cell((rows == row) & (columns == column)).images)
    wrong = rows != columns
    errors = np.bincount(images[wrong], numbers[wrong], len(records)).astype(int)
    report.notes = [f'{number} mistakes' for number in errors]
    report.add_section('Worst images')
    report.add_pictures(largest(errors), 'Annotation and prediction of the images with the most mistakes.')
