"""What a detector gets wrong."""
import contextlib
import io
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import supervision as sv
from matplotlib.figure import Figure
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from .page import Cell, Report

# TIDE's kinds of errors (Bolya et al. 2020): tidecv's class, what the report calls it.
KINDS = {
    'Cls': ('ClassError', 'class: located, but another class'),
    'Loc': ('BoxError', 'localisation: right class, IoU below 0.5'),
    'Both': ('OtherError', 'both class and localisation'),
    'Dupe': ('DuplicateError', 'duplicate of a detected object'),
    'Bkg': ('BackgroundError', 'background: no object there'),
    'Miss': ('MissedError', 'missed object'),
}


def evaluate(records: Sequence[dict[str, Any]], classes: Sequence[str], iou_type: str) -> COCOeval:
    """Return pycocotools' accumulated evaluation; class ``k`` is category ``k + 1``, record ``i`` image ``i + 1``.

    Args:
        records: see :func:`diagnose`.
        classes: their names.
        iou_type: 'bbox' or 'segm'.
    """
    annotations, results = [], []
    for number, record in enumerate(records, 1):
        for i, (box, label) in enumerate(zip(record['gt_boxes'], record['gt_labels'])):
            entry = dict(id=len(annotations) + 1, image_id=number, category_id=int(label) + 1, bbox=_xywh(box),
                         iscrowd=int(record['gt_crowd'][i]), area=float(record['gt_areas'][i]))
            annotations.append(entry | (dict(segmentation=record['gt_masks'][i]) if record['gt_masks'] else {}))
        for i, (box, label, score) in enumerate(zip(record['boxes'], record['labels'], record['scores'])):
            shape = dict(segmentation=record['masks'][i]) if iou_type == 'segm' else dict(bbox=_xywh(box))
            results.append(dict(image_id=number, category_id=int(label) + 1, score=float(score), **shape))
    truth, found = COCO(), COCO()
    truth.dataset = dict(images=[dict(id=n, height=r['size'][0], width=r['size'][1]) for n, r in enumerate(records, 1)],
                         annotations=annotations, categories=[dict(id=k + 1, name=c) for k, c in enumerate(classes)])
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth.createIndex()
        if results:
            found = truth.loadRes(results)
        else:
            found.dataset = truth.dataset | dict(annotations=[])
            found.createIndex()
        evaluation = COCOeval(truth, found, iou_type)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation


def _xywh(box: Sequence[float]) -> list[float]:
    left, top, right, bottom = map(float, box)
    return [left, top, right - left, bottom - top]


def mean_precision(evaluation: COCOeval, iou: float | None = None, k: int | None = None, area: int = 0) -> float:
    """Return the average precision in percent: of one class or all, one IoU or 0.5 to 0.95; NaN without objects.

    Args:
        area: 0 all, 1 small, 2 medium, 3 large objects.
    """
    precision = evaluation.eval['precision']  # (IoU, recall, class, area, detections)
    chosen = slice(None) if iou is None else [int(round((iou - 0.5) / 0.05))]
    values = precision[chosen][:, :, slice(None) if k is None else [k], area, -1]
    values = values[values > -1]
    return 100. * float(values.mean()) if values.size else float('nan')


def best_thresholds(evaluation: COCOeval) -> list[tuple[float, float]]:
    """Return the score and the F1 of each class at the threshold with the best F1, IoU 0.5; NaN without detections."""
    recall = evaluation.params.recThrs
    found = []
    for k in range(evaluation.eval['precision'].shape[2]):
        precision, scores = (evaluation.eval[key][0, :, k, 0, -1] for key in ('precision', 'scores'))
        f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-9)
        best = int(f1.argmax())
        found.append((float(scores[best]), float(f1[best])) if f1[best] > 0 else (float('nan'), float('nan')))
    return found


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Add AP, precision-recall curves, confusion, kinds of errors and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``size`` (height, width); ``gt_boxes`` (N, 4) as left, top, right, bottom in
            pixels, ``gt_labels``, ``gt_crowd``, ``gt_areas`` (N, ), ``gt_masks`` (a list of RLE dicts, or empty), and
            ``boxes`` (M, 4), ``labels``, ``scores`` (M, ), ``masks`` (RLE dicts, or empty).
        classes: their names.
    """
    with_masks = any(record['masks'] for record in records) and any(record['gt_masks'] for record in records)
    evaluations = {name: evaluate(records, classes, name) for name in ('bbox', *(['segm'] if with_masks else []))}
    boxes = evaluations['bbox']
    total = sum(len(record['gt_labels']) for record in records)
    report.summary.append(
        '; '.join(f'{name} AP is {mean_precision(e):.1f} %, AP50 {mean_precision(e, 0.5):.1f} %' for name, e in
                  evaluations.items()) + f' of {total} objects in {len(records)} images.')
    if not any(len(record['scores']) for record in records):
        report.summary.append('The network detected nothing in any image. Train it for longer.')

    report.add_section('Average precision', 'In percent, by pycocotools. Small objects are below 32 x 32 pixels, '
                       'medium ones below 96 x 96.')
    columns = ['', 'AP', 'AP50', 'AP75', 'small', 'medium', 'large']
    rows = [[name, mean_precision(e), mean_precision(e, 0.5), mean_precision(e, 0.75),
             *(mean_precision(e, area=a) for a in (1, 2, 3))] for name, e in evaluations.items()]
    report.add_table(columns, rows)
    thresholds = best_thresholds(boxes)
    matches = _match(records, thresholds)
    rows = []
    for k, name in enumerate(classes):
        missed = [i for i, match in enumerate(matches) if k in match['missed']]
        false = [i for i, match in enumerate(matches) if k in match['false']]
        objects = sum(int((np.asarray(record['gt_labels']) == k).sum()) for record in records)
        rows.append([name, objects, mean_precision(boxes, k=k), mean_precision(boxes, 0.5, k), thresholds[k][0],
                     thresholds[k][1], Cell(sum(m['missed'].count(k) for m in matches), missed),
                     Cell(sum(m['false'].count(k) for m in matches), false)])
    report.add_table(['class', 'objects', 'AP', 'AP50', 'best score threshold', 'F1 there', 'missed', 'false'],
                     rows, "Missed and false objects are counted at each class's threshold of best F1, IoU 0.5.")
    _draw_curves(report, boxes, classes)

    report.add_section('Kinds of errors', 'By TIDE: what AP50 would gain if all errors of one kind were corrected.')
    gains, images = tide(records, classes)
    report.add_table(['kind', 'AP50 gained', 'errors'], [
        [text, gains[kind], Cell(len(images[kind]), list(dict.fromkeys(images[kind])))]
        for kind, (_, text) in KINDS.items()])

    if total and len(classes) <= 60:
        report.add_section('Confusion', 'Rows are annotated classes, columns detected ones, at IoU 0.5 and score 0.3.')
        matrix = sv.ConfusionMatrix.from_detections(
            predictions=[_detections(r['boxes'], r['labels'], r['scores']) for r in records],
            targets=[_detections(r['gt_boxes'], r['gt_labels']) for r in records], classes=list(classes),
            conf_threshold=0.3, iou_threshold=0.5).matrix.astype(int)
        names = [*classes, 'background']
        report.add_table(['', *names], [
            [names[row], *(Cell(int(value), shade=value / max(matrix[row].sum(), 1)) for value in matrix[row])]
            for row in range(len(names))])

    report.add_section('Worst images')
    order = sorted(range(len(records)), key=lambda i: -len(matches[i]['missed']) - len(matches[i]['false']))
    for i, match in enumerate(matches):
        report.images[i]['note'] = f'{len(match["missed"])} missed, {len(match["false"])} false'
    report.add_pictures([i for i in order if matches[i]['missed'] or matches[i]['false']],
                        'Annotation and prediction of the images with the most missed and false objects.')
    return dict(matches=matches)


def _detections(boxes: Any, labels: Any, scores: Any = None) -> sv.Detections:
    return sv.Detections(np.asarray(boxes, np.float32).reshape(-1, 4), class_id=np.asarray(labels, int).reshape(-1),
                         confidence=None if scores is None else np.asarray(scores, np.float32).reshape(-1))


def _match(records: Sequence[dict[str, Any]], thresholds: Sequence[tuple[float, float]]) -> list[dict[str, list[int]]]:
    """Return the classes of each image's hits, missed objects and false detections above each class's threshold."""
    matches = []
    for record in records:
        kept = [i for i, (label, score) in enumerate(zip(record['labels'], record['scores']))
                if score >= np.nan_to_num(thresholds[label][0], nan=np.inf)]
        match = dict(hit=[], missed=[], false=[])
        for k in set(map(int, record['gt_labels'])) | {int(record['labels'][i]) for i in kept}:
            truth = [i for i, label in enumerate(record['gt_labels']) if label == k and not record['gt_crowd'][i]]
            found = sorted((i for i in kept if record['labels'][i] == k), key=lambda i: -record['scores'][i])
            free = set(range(len(truth)))
            overlaps = sv.box_iou_batch(np.reshape(record['gt_boxes'], (-1, 4))[truth],
                                        np.reshape(record['boxes'], (-1, 4))[found])
            for j in range(len(found)):
                best = max(free, key=lambda i: overlaps[i, j]) if free else None
                if best is not None and overlaps[best, j] >= 0.5:
                    free.remove(best)
                    match['hit'].append(k)
                else:
                    match['false'].append(k)
            match['missed'] += [k] * len(free)
        matches.append(match)
    return matches


def tide(records: Sequence[dict[str, Any]], classes: Sequence[str]) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return AP50 that each of TIDE's kinds of errors costs, in percent, and the image of every error, by tidecv."""
    import tidecv
    truth, found = tidecv.Data('annotations'), tidecv.Data('predictions')
    for k, name in enumerate(classes):
        truth.add_class(k, name)
    for i, record in enumerate(records):
        truth.add_image(i, str(i))
        for box, label, crowd in zip(record['gt_boxes'], record['gt_labels'], record['gt_crowd']):
            add = truth.add_ignore_region if crowd else truth.add_ground_truth
            add(i, int(label), _xywh(box))
        for box, label, score in zip(record['boxes'], record['labels'], record['scores']):
            found.add_detection(i, int(label), float(score), _xywh(box))
    images: dict[str, list[int]] = defaultdict(list)
    if not truth.annotations:
        return dict.fromkeys(KINDS, float('nan')), images
    evaluation = tidecv.TIDE(mode=tidecv.TIDE.BOX)
    run = evaluation.evaluate(truth, found, name='run')
    names = {name: kind for kind, (name, _) in KINDS.items()}
    for error in run.errors:
        images[names[type(error).__name__]].append((error.gt if hasattr(error, 'gt') and not hasattr(error, 'pred')
                                                    else error.pred)['image'])
    gains = {}
    for kind, (name, _) in KINDS.items():
        try:
            gains[kind] = float(sum(run.fix_main_errors(error_types=[getattr(tidecv, name)]).values()))
        except ZeroDivisionError:  # no object is left whose precision could be computed: all were of this kind
            gains[kind] = 100. - run.ap
    return gains, images


def _draw_curves(report: Report, evaluation: COCOeval, classes: Sequence[str]) -> None:
    precision, scores = evaluation.eval['precision'][0, :, :, 0, -1], evaluation.eval['scores'][0, :, :, 0, -1]
    known = [k for k in range(len(classes)) if precision[0, k] > -1]
    if not known:
        return
    figure = Figure((9, 4))
    curves, over_score = figure.subplots(1, 2)
    for k in known[:20]:
        curves.plot(evaluation.params.recThrs, precision[:, k], label=classes[k])
    curves.set(xlabel='recall', ylabel='precision', xlim=(0, 1), ylim=(0, 1.02))
    curves.legend(fontsize=6, ncols=2)
    steps = np.linspace(0, 1, 51)
    # Without the detections below a threshold the curve ends at the recall that those above it reach.
    over_score.plot(steps, [100 * np.where(scores[:, known] >= step, precision[:, known], 0).mean() for step in steps])
    over_score.set(xlabel='score threshold', ylabel='AP50, %')
    report.add_figure(figure, 'Precision over recall at IoU 0.5, and AP50 of the detections above a score.')
