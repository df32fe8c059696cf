"""Report the errors of a detector."""
import contextlib
import io
import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import supervision as sv
import tidecv
from matplotlib.figure import Figure
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval, Params
from sklearn.metrics import precision_recall_curve

from .label_quality import add_suspects, of_objects
from .page import Cell, Report, largest

RECALLS = Params('bbox').recThrs  # where pycocotools reads precision
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
        classes: class names.
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


def match(evaluation: COCOeval) -> tuple[np.ndarray, np.ndarray]:
    """Return pycocotools' matches at IoU 0.5, without crowds.

    Returns:
        detections (D, 4) with class, image, score and whether it is a hit, the highest score first, and objects (N, 3)
        with class, image and the score of the detection that hits it, -1 if there is none.
    """
    areas, images = len(evaluation.params.areaRng), len(evaluation.params.imgIds)
    detections, objects = [], []
    for number, entry in enumerate(evaluation.evalImgs):
        if entry is None or number // images % areas:
            continue  # neither objects nor detections, or of objects of one size only
        place = number // (areas * images), number % images
        score = dict(zip(entry['dtIds'], entry['dtScores']))
        detections += [(*place, score[i], hit > 0) for i, hit, ignored in zip(
            entry['dtIds'], entry['dtMatches'][0], entry['dtIgnore'][0]) if not ignored]
        objects += [(*place, score.get(hit, -1.)) for hit, ignored in zip(
            entry['gtMatches'][0], entry['gtIgnore']) if not ignored]
    found = np.array(detections, float).reshape(-1, 4)
    return found[np.argsort(-found[:, 2], kind='stable')], np.array(objects, float).reshape(-1, 3)


def best_threshold(detections: np.ndarray, objects: int) -> tuple[float, float, float, float]:
    """Return the score with the best F1, and precision, recall and F1 there; NaN if no detection is a hit.

    Args:
        detections: see :func:`match`.
        objects: number of annotated ones.
    """
    if not detections[:, 3].any():
        return (float('nan'), ) * 4
    precision, recall, scores = precision_recall_curve(detections[:, 3], detections[:, 2])
    recall = recall * detections[:, 3].sum() / objects  # of all objects, not of those that some detection hits
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    best = int(f1[:-1].argmax())
    return float(scores[best]), float(precision[best]), float(recall[best]), float(f1[best])


def average_precision(detections: np.ndarray, objects: float, weights: np.ndarray) -> float:
    """Return the AP50 of one class, interpolated as pycocotools does, as a fraction; NaN without objects.

    Args:
        detections: see :func:`match`.
        objects: sum of the weights of the annotated ones.
        weights: weights of the detections (D, ); 0 leaves one out.
    """
    if not objects:
        return float('nan')
    hits = (weights * detections[:, 3]).cumsum()
    precision = hits / np.maximum(weights.cumsum(), 1e-12)
    highest = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.)  # none at a recall that is not reached
    return float(highest[np.searchsorted(hits / objects, RECALLS)].mean())


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Add AP, precision-recall curves, confusion, kinds of errors and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``size`` (height, width); ``gt_boxes`` (N, 4) as left, top, right, bottom in
            pixels, ``gt_labels``, ``gt_crowd``, ``gt_areas`` (N, ), ``gt_masks`` (a list of RLE dicts, or empty), and
            ``boxes`` (M, 4), ``labels``, ``scores`` (M, ), ``masks`` (RLE dicts, or empty). Each gets ``shown``, bool
            (M, ), the detections above the threshold.
        classes: class names.

    Returns:
        dict with ``hit``, ``missed`` and ``false``, numbers of objects (images, classes), and ``detections`` of
        :func:`match`, which :mod:`cvt_dense.report.compare` needs, and ``suspects``, the images in the order of
        :func:`.label_quality.add_suspects`.
    """
    with_masks = any(record['masks'] for record in records) and any(record['gt_masks'] for record in records)
    evaluations = {name: evaluate(records, classes, name) for name in ('bbox', *(['segm'] if with_masks else []))}
    detections, objects = match(evaluations['bbox'])
    threshold = _add_summary(report, records, evaluations, detections, objects, classes)
    for record in records:
        record['shown'] = np.asarray(record['scores']) >= threshold
    counts = _count(detections, objects, threshold, (len(records), len(classes)))
    _add_precision(report, evaluations, classes)
    _draw_curves(report, evaluations['bbox'], detections, objects, classes)
    _add_classes(report, counts, detections, objects, threshold, classes)
    _add_kinds(report, records, list(evaluations), classes)
    _add_confusion(report, records, threshold, classes)
    _add_worst(report, counts)
    suspects = add_suspects(report, [of_objects(record) for record in records])
    return counts | dict(detections=detections, suspects=suspects)


def _add_summary(report: Report, records: Sequence[dict[str, Any]], evaluations: dict[str, COCOeval],
                 detections: np.ndarray, objects: np.ndarray, classes: Sequence[str]) -> float:
    """Add sentences to the summary; return the score with the best F1, or 0.3 if no object is detected."""
    report.summary.append(
        '; '.join(f'{name} AP is {mean_precision(e):.1f} %, AP50 {mean_precision(e, 0.5):.1f} %' for name, e in
                  evaluations.items()) + f' of {len(objects)} objects in {len(records)} images.')
    threshold, _, _, f1 = best_threshold(detections, len(objects))
    if np.isnan(threshold):
        found = sum(len(record['scores']) for record in records)
        report.summary.append(f'No object is detected: the network has {found} detections, and none is a hit at IoU '
                              '0.5. Train it for longer, or check its classes.')
        return 0.3
    report.summary.append(f'The best F1 is {f1:.3f}, of the detections with scores from {threshold:.3f}. They are '
                          'the detections in the pictures, and among missed and false objects below.')
    lost = set(objects[:, 0]) - set(detections[detections[:, 3] > 0, 0])
    if lost:
        report.summary.append('No object of these classes is detected: '
                              f'{", ".join(classes[int(k)] for k in sorted(lost))}. Check that they occur in the '
                              'training data.')
    return threshold


def _count(detections: np.ndarray, objects: np.ndarray, threshold: float,
           shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """Return the numbers (images, classes) of objects that are hit and missed, and of false detections."""
    counts = {kind: np.zeros(shape, int) for kind in ('hit', 'missed', 'false')}
    kept = detections[detections[:, 2] >= threshold]
    for kind, rows in (('hit', objects[objects[:, 2] >= threshold]), ('missed', objects[objects[:, 2] < threshold]),
                       ('false', kept[kept[:, 3] == 0])):
        np.add.at(counts[kind], (rows[:, 1].astype(int), rows[:, 0].astype(int)), 1)
    return counts


def _add_precision(report: Report, evaluations: dict[str, COCOeval], classes: Sequence[str]) -> None:
    report.add_section('Average precision', 'In percent, by pycocotools. Small objects are below 32 x 32 pixels, '
                       'medium ones below 96 x 96.')
    sizes = [(None, 0), (0.5, 0), (0.75, 0), (None, 1), (None, 2), (None, 3)]
    columns = ['AP', 'AP50', 'AP75', 'small', 'medium', 'large']
    report.add_table(['', *columns], [[name, *(mean_precision(e, iou, area=area) for iou, area in sizes)]
                                      for name, e in evaluations.items()])
    ious = evaluations['bbox'].params.iouThrs
    report.add_table(['AP at an IoU of', *(f'{iou:.2f}' for iou in ious)], [
        [name, *(mean_precision(e, iou) for iou in ious)] for name, e in evaluations.items()])
    for name, e in evaluations.items():
        report.add_table([f'{name} AP of', *columns], [
            [label, *(mean_precision(e, iou, k, area) for iou, area in sizes)] for k, label in enumerate(classes)])


def _add_classes(report: Report, counts: dict[str, np.ndarray], detections: np.ndarray, objects: np.ndarray,
                 threshold: float, classes: Sequence[str]) -> None:
    def most(kind: str, k: int) -> Cell:
        of_class = counts[kind][:, k]
        return Cell(int(of_class.sum()), largest(of_class))

    of_class = [int((objects[:, 0] == k).sum()) for k in range(len(classes))]
    report.add_section('Classes', f'Missed and false objects at score {threshold:.3f} and IoU 0.5.')
    report.add_table(['class', 'objects', 'found', 'missed', 'false', 'threshold of best F1', 'precision there',
                      'recall there', 'F1 there'], [
        [name, of_class[k], most('hit', k), most('missed', k), most('false', k),
         *best_threshold(detections[detections[:, 0] == k], of_class[k])] for k, name in enumerate(classes)])


def _add_kinds(report: Report, records: Sequence[dict[str, Any]], iou_types: Sequence[str],
               classes: Sequence[str]) -> None:
    report.add_section('Kinds of errors', 'By TIDE: what AP50 would gain if all errors of one kind were corrected.')
    found = {name: tide(records, classes, name) for name in iou_types}
    report.add_table(['kind', *(f'{name} {what}' for name in found for what in ('AP50 gained', 'errors'))], [
        [text, *(value for gains, images in found.values() for value in (
            gains[kind], Cell(len(images[kind]), list(dict.fromkeys(images[kind])))))]
        for kind, (_, text) in KINDS.items()])


def _add_confusion(report: Report, records: Sequence[dict[str, Any]], threshold: float, classes: Sequence[str]) -> None:
    report.add_section('Confusion', 'Rows are annotated classes, columns detected ones, by supervision at IoU 0.5 and '
                       f'score {threshold:.3f}. Boxes of one class are matched first, then those of different '
                       'classes, each by falling IoU. Detections of crowds count as background.')
    matrix = np.zeros((len(classes) + 1, ) * 2, int)
    cells = defaultdict(list)
    for i, record in enumerate(records):
        shown, known = record['shown'], np.equal(record['gt_crowd'], 0)
        of_image = sv.ConfusionMatrix.evaluate_detection_batch(
            np.column_stack([record['boxes'], record['labels'], record['scores']])[shown].reshape(-1, 6),
            np.column_stack([record['gt_boxes'], record['gt_labels']])[known].reshape(-1, 5), len(classes), 0., 0.5)
        matrix += of_image
        for place in zip(*of_image.nonzero()):
            cells[place].append(i)
    report.add_confusion(matrix, [*classes, 'background'], lambda row, column: cells[row, column])


def _add_worst(report: Report, counts: dict[str, np.ndarray]) -> None:
    for i, image in enumerate(report.images):
        image['note'] = f'{counts["missed"][i].sum()} missed, {counts["false"][i].sum()} false'
    report.add_section('Worst images')
    report.add_pictures(largest((counts['missed'] + counts['false']).sum(1)),
                        'Annotation and prediction of the images with the most missed and false ones.')


def tide(records: Sequence[dict[str, Any]], classes: Sequence[str],
         iou_type: str = 'bbox') -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return AP50 that each of TIDE's kinds of errors costs, in percent, and the image of every error, by tidecv.

    Args:
        records, classes, iou_type: see :func:`evaluate`.
    """
    truth, found = tidecv.Data('annotations'), tidecv.Data('predictions')
    for k, name in enumerate(classes):
        truth.add_class(k, name)
    nothing = itertools.repeat(None)
    for i, record in enumerate(records):
        truth.add_image(i, str(i))
        for box, label, crowd, mask in zip(record['gt_boxes'], record['gt_labels'], record['gt_crowd'],
                                           record['gt_masks'] or nothing):
            add = truth.add_ignore_region if crowd else truth.add_ground_truth
            add(i, int(label), _xywh(box), mask)
        for box, label, score, mask in zip(record['boxes'], record['labels'], record['scores'],
                                           record['masks'] or nothing):
            found.add_detection(i, int(label), float(score), _xywh(box), mask)
    images: dict[str, list[int]] = defaultdict(list)
    if all(one['ignore'] for one in truth.annotations):
        return dict.fromkeys(KINDS, float('nan')), images
    mode = tidecv.TIDE.BOX if iou_type == 'bbox' else tidecv.TIDE.MASK
    run = tidecv.TIDE(mode=mode).evaluate(truth, found, name='run')
    names = {name: kind for kind, (name, _) in KINDS.items()}
    for error in run.errors:
        images[names[type(error).__name__]].append((error.pred if hasattr(error, 'pred') else error.gt)['image'])
    gains = {}
    for kind, (name, _) in KINDS.items():
        try:
            gains[kind] = float(sum(run.fix_main_errors(error_types=[getattr(tidecv, name)]).values()))
        except ZeroDivisionError:  # no object is left whose precision could be computed: all were of this kind
            gains[kind] = 100. - run.ap
    return gains, images


def _draw_curves(report: Report, evaluation: COCOeval, detections: np.ndarray, objects: np.ndarray,
                 classes: Sequence[str]) -> None:
    counts = np.bincount(objects[:, 0].astype(int), minlength=len(classes))
    known = [k for k in np.argsort(-counts, kind='stable') if counts[k]]
    figure = Figure((9, 4))
    curves, over_score = figure.subplots(1, 2)
    steps = np.linspace(0, 1, 51)
    for k in known[:20]:
        curves.plot(RECALLS, evaluation.eval['precision'][0, :, k, 0, -1], label=classes[k])
    curves.set(xlabel='recall', ylabel='precision', xlim=(0, 1), ylim=(0, 1.02))
    curves.legend(fontsize=6, ncols=2)
    above = [[average_precision(rows, counts[k], rows[:, 2] >= step) for step in steps]
             for k in known for rows in [detections[detections[:, 0] == k]]]
    over_score.plot(steps, 100 * np.mean(above, 0))
    over_score.set(xlabel='score threshold', ylabel='AP50, %')
    report.add_figure(figure, 'Precision over recall at IoU 0.5 (of at most 20 classes, those with the most objects), '
                      'and AP50 of the detections above a score.')
