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

CAUSES = 'other class', 'repeated', 'misplaced', 'both', 'background', 'missed'  # TIDE: Cls, Dupe, Loc, Both, Bkg, Miss
MISSED = CAUSES.index('missed')


def evaluate(records: Sequence[dict[str, Any]], classes: Sequence[str], iou_type: str) -> COCOeval:
    """Return pycocotools' accumulated evaluation; class ``k`` is category ``k + 1``, record ``i`` image ``i + 1``.

    Args:
        records: see :func:`diagnose`.
        classes: class names.
        iou_type: 'bbox' or 'segm'.
    """
    annotations, results = [], []
    for number, record in enumerate(records, 1):
        for i, (box, label) in enumerate(zip(_xywh(record['gt_boxes']), record['gt_labels'])):
            entry = dict(id=len(annotations) + 1, image_id=number, category_id=int(label) + 1, bbox=box,
                         iscrowd=int(record['gt_crowd'][i]), area=float(record['gt_areas'][i]))
            annotations.append(entry | (dict(segmentation=record['gt_masks'][i]) if record['gt_masks'] else {}))
        for i, (box, label, score) in enumerate(zip(_xywh(record['boxes']), record['labels'], record['scores'])):
            shape = dict(segmentation=record['masks'][i]) if iou_type == 'segm' else dict(bbox=box)
            results.append(dict(image_id=number, category_id=int(label) + 1, score=float(score), **shape))
    truth = COCO()
    truth.dataset = dict(images=[dict(id=n, height=r['size'][0], width=r['size'][1]) for n, r in enumerate(records, 1)],
                         annotations=annotations, categories=[dict(id=k + 1, name=c) for k, c in enumerate(classes)])
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth.createIndex()
        predicted = truth.loadRes(results) if results else COCO()
        evaluation = COCOeval(truth, predicted, iou_type)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def _xywh(boxes: Any) -> list[list[float]]:
    return sv.xyxy_to_xywh(np.reshape(boxes, (-1, 4)).astype(float)).tolist()


def average_precision(evaluation: COCOeval, iou: float | None = None, k: int | None = None, area: int = 0) -> float:
    """Return the average precision in percent: of one class or all, one IoU or 0.5 to 0.95; NaN without objects.

    Args:
        area: 0 all, 1 small, 2 medium, 3 large objects.
    """
    precision = evaluation.eval['precision']  # (IoU, recall, class, area, detections)
    chosen = slice(None) if iou is None else [int(round((iou - 0.5) / 0.05))]
    values = precision[chosen][:, :, slice(None) if k is None else [k], area, -1]
    values = values[values > -1]
    return 100. * float(values.mean()) if values.size else float('nan')


def match(evaluation: COCOeval) -> tuple[np.ndarray, np.ndarray]:
    """Return pycocotools' matches at IoU 0.5, without crowds.

    Returns:
        detections (D, 5) with class, image, score, whether it is a hit, and its number among those of all records, the
        highest score first, and objects (N, 4) with class, image, the score of the detection that hits it, -1 if there
        is none, and its number.
    """
    areas, images = len(evaluation.params.areaRng), len(evaluation.params.imgIds)
    detections, objects = [], []
    for number, entry in enumerate(evaluation.evalImgs):
        if entry is None or number // images % areas:
            continue  # neither objects nor detections, or of objects of one size only
        class_and_image = number // (areas * images), number % images
        score = dict(zip(entry['dtIds'], entry['dtScores']))
        detections += [(*class_and_image, score[i], hit > 0, i - 1) for i, hit, ignored in zip(
            entry['dtIds'], entry['dtMatches'][0], entry['dtIgnore'][0]) if not ignored]
        objects += [(*class_and_image, score.get(hit, -1.), i - 1) for i, hit, ignored in zip(
            entry['gtIds'], entry['gtMatches'][0], entry['gtIgnore']) if not ignored]
    matched = np.array(detections, float).reshape(-1, 5)
    return matched[np.argsort(-matched[:, 2], kind='stable')], np.array(objects, float).reshape(-1, 4)


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


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add AP, confusion and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``size`` (height, width); ``gt_boxes`` (N, 4) as left, top, right, bottom in
            pixels, ``gt_labels``, ``gt_crowd``, ``gt_areas`` (N, ), ``gt_masks`` (a list of RLE dicts, or empty), and
            ``boxes`` (M, 4), ``labels``, ``scores`` (M, ), ``masks`` (RLE dicts, or empty). Each gets ``shown``, bool
            (M, ), the detections above the threshold.
        classes: class names.
    """
    with_masks = any(record['masks'] for record in records) and any(record['gt_masks'] for record in records)
    evaluations = {'bbox': evaluate(records, classes, 'bbox')}
    if with_masks:
        evaluations['segm'] = evaluate(records, classes, 'segm')
    detections, objects = match(evaluations['bbox'])
    threshold = _add_summary(report, records, evaluations, detections, objects, classes)
    for record in records:
        record['shown'] = np.asarray(record['scores']) >= threshold
    _add_precision(report, evaluations, classes)
    errors = _add_classes(report, len(records), detections, objects, threshold, classes)
    add_causes(report, records, detections, objects, threshold, classes)
    _add_worst(report, errors)


def _add_summary(report: Report, records: Sequence[dict[str, Any]], evaluations: dict[str, COCOeval],
                 detections: np.ndarray, objects: np.ndarray, classes: Sequence[str]) -> float:
    """Add sentences to the summary; return the score with the best F1, or 0.3 if no object is detected."""
    if not len(objects):
        report.summary.append(f'None of the {len(records)} images has an object that counts: crowds do not.')
        return 0.3
    report.summary.append(
        '; '.join(f'{name} AP is {average_precision(e):.1f} %, AP50 {average_precision(e, 0.5):.1f} %' for name, e in
                  evaluations.items()) + f' of {len(objects)} objects in {len(records)} images.')
    threshold, _, _, f1 = best_threshold(detections, len(objects))
    if np.isnan(threshold):
        report.summary.append(f'No object is detected: the network has {len(detections)} detections, and none is a '
                              'hit at IoU 0.5. Train it for longer, or check its classes.')
        return 0.3
    report.summary.append(f'The best F1 is {f1:.3f}, of the detections with scores from {threshold:.3f}. They are '
                          'the detections in the pictures, and among missed and false objects below.')
    lost = [classes[int(k)] for k in sorted(set(objects[:, 0]) - set(detections[detections[:, 3] > 0, 0]))]
    if lost:
        report.summary.append(f'No detection hits an object of these classes at IoU 0.5: {", ".join(lost)}. Train for '
                              'longer, or check that they occur in the training data.')
    return threshold


def _add_precision(report: Report, evaluations: dict[str, COCOeval], classes: Sequence[str]) -> None:
    report.add_section('Average precision', 'In percent, by pycocotools. Small objects are below 32 x 32 pixels, '
                       'medium ones below 96 x 96.')
    sizes = dict(AP=(None, 0), AP50=(0.5, 0), AP75=(0.75, 0), small=(None, 1), medium=(None, 2), large=(None, 3))
    for name, evaluation in evaluations.items():
        report.add_table([name, *sizes], [
            [label, *(Cell(average_precision(evaluation, iou, k, area), digits=1) for iou, area in sizes.values())]
            for k, label in [(None, 'all'), *enumerate(classes)]])


def _add_classes(report: Report, images: int, detections: np.ndarray, objects: np.ndarray, threshold: float,
                 classes: Sequence[str]) -> np.ndarray:
    """Add a section; return the numbers (2, images, classes) of missed objects and of false detections."""
    hit = objects[:, 2] >= threshold
    false = (detections[:, 2] >= threshold) & (detections[:, 3] == 0)
    counts = np.zeros((3, images, len(classes)), int)
    for of_kind, rows in zip(counts, (objects[~hit], detections[false], objects[hit])):
        np.add.at(of_kind, (rows[:, 1].astype(int), rows[:, 0].astype(int)), 1)
    report.add_section('Classes', f'Missed and false objects at score {threshold:.3f} and IoU 0.5, and the best F1 of '
                       'each class, with its threshold.')
    rows = []
    for k, name in enumerate(classes):
        number = (objects[:, 0] == k).sum()
        missed, false, hits = (Cell(column.sum(), largest(column)) for column in counts[:, :, k])
        rows.append([name, number, hits, missed, false, *best_threshold(detections[detections[:, 0] == k], number)])
    header = ['class', 'objects', 'detected', 'missed', 'false', 'threshold', 'precision', 'recall', 'F1']
    report.add_table(header, rows)
    return counts[:2]


def add_causes(report: Report, records: Sequence[dict[str, Any]], detections: np.ndarray, objects: np.ndarray,
               threshold: float, classes: Sequence[str]) -> None:
    """Add TIDE's causes of false detections and missed objects, and the confusion matrix; see :func:`match`.

    TIDE calls a box misplaced if it also touches an object of its own class; here no confusion is hidden so.
    """
    boxes, truth = (np.concatenate([np.reshape(r[key], (-1, 4)) for r in records]) for key in ('boxes', 'gt_boxes'))
    detections, background, events = detections[detections[:, 2] >= threshold].astype(int), len(classes), []
    for i in range(len(records)):
        found, there = detections[detections[:, 1] == i], objects[objects[:, 1] == i]
        labels = np.append(there[:, 0], background).astype(int)
        overlaps = np.zeros((len(labels), len(found)))  # nothing overlaps the background
        overlaps[:-1] = sv.box_iou_batch(truth[there[:, 3].astype(int)], boxes[found[:, 4]])
        same = labels[:, None] == found[:, 0]
        own, other = overlaps * same, overlaps * ~same
        confused = (other.max(0) >= 0.5) & (other.max(0) >= own.max(0))
        nearest = np.where(confused, other, own).argmax(0)
        conditions = found[:, 3] > 0, confused, own.max(0) >= 0.5, own.max(0) >= 0.1, other.max(0) >= 0.1
        cause = np.select(conditions, [-1, 0, 1, 2, 3], 4)
        annotated = np.select([cause < 0, cause == 0], [found[:, 0], labels[nearest]], background)
        events += zip(annotated, found[:, 0], cause, itertools.repeat(i))
        events += [(labels[k], background, -1 if k in nearest[cause == 2] else MISSED, i) for k in np.setdiff1d(
            np.flatnonzero(there[:, 2] < threshold), nearest[cause == 0])]
    rows, columns, causes, images = np.array(events, int).reshape(-1, 4).T

    def cell(k: int, cause: int) -> Cell:
        chosen = images[(causes == cause) & ((rows if cause == MISSED else columns) == k)]
        return Cell(len(chosen), largest(np.bincount(chosen)))

    totals = np.bincount(causes[causes >= 0], minlength=len(CAUSES))
    report.summary.append(f'Of {totals[:MISSED].sum()} false detections {totals[0]} are on an object of another class, '
                          f'{totals[4]} on the background, and the others repeat or miss the place of an object.')
    report.add_section(
        'Causes', f'By TIDE (Bolya et al. 2020) at score {threshold:.3f}: a false detection is on an object of another '
        'class (IoU 0.5), repeats one of its class, is misplaced (0.1 to 0.5), both misplaced and of another class, or '
        'on the background. A missed object is one that no detection is on, and none of its class beside.')
    report.add_table(['class', *CAUSES], [
        [name, *(cell(k, cause) for cause in range(len(CAUSES)))] for k, name in enumerate(classes)])
    report.add_section('Confusion', 'Rows are annotated classes, columns detected ones, at IoU 0.5. A detection counts '
                       'once, on an object of another class even if that is detected rightly too. Crowds do not count.')
    matrix = np.zeros((background + 1, ) * 2, int)
    np.add.at(matrix, (rows, columns), 1)
    report.add_confusion(matrix, [*classes, 'background'], lambda row, column: np.unique(
        images[(rows == row) & (columns == column)]))


def _add_worst(report: Report, errors: np.ndarray) -> None:
    for image, missed, false in zip(report.images, *errors.sum(2)):
        image['note'] = f'{missed} missed, {false} false'
    report.add_section('Worst images')
    report.add_pictures(largest(errors.sum((0, 2))),
                        'Annotation and prediction of the images with the most missed and false ones.')
