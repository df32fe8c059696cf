"""Report the errors of a segmentor."""
from collections.abc import Sequence
from typing import Any

import numpy as np

from .page import Cell, Report, largest


def count(prediction: np.ndarray, annotation: np.ndarray, classes: int, ignore_index: int) -> np.ndarray:
    """Return the pixels (classes, classes) of one image by annotated and predicted class.

    Args:
        prediction, annotation: label maps (H, W).
        classes: number of them.
        ignore_index: annotated value that does not count.
    """
    known = (annotation != ignore_index) & (annotation < classes)
    pairs = annotation[known].astype(np.int64) * classes + prediction[known]
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes).astype(np.int32)


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add IoU, confusion and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``matrix``, the result of :func:`count`.
        classes: class names.
    """
    matrices = np.stack([record['matrix'] for record in records])
    total, annotated = matrices.sum(0), matrices.sum(2)  # (C, C); (images, C)
    errors = annotated + matrices.sum(1) - 2 * matrices.diagonal(axis1=1, axis2=2)  # missed or wrongly predicted
    hits, fraction = total.diagonal(), total.sum(1) / total.sum()
    with np.errstate(invalid='ignore'):  # a class that does not occur has no IoU
        iou, accuracy = hits / (hits + errors.sum(0)), hits / total.sum(1)
    report.summary.append(f'mIoU is {100 * np.nanmean(iou):.2f} %, pixel accuracy {100 * hits.sum() / total.sum():.2f} '
                          f'% of {len(records)} images.')
    report.add_section('Classes', 'The pictures of a class begin with those that have most of its wrong pixels.')
    report.add_table(['class', 'IoU', 'accuracy', 'fraction of pixels', 'wrong pixels'], [
        [name, iou[k], accuracy[k], fraction[k], Cell(errors[:, k].sum(), largest(errors[:, k]))]
        for k, name in enumerate(classes)])
    report.add_confusion(total, classes, lambda row, column: largest(matrices[:, row, column]))
    wrong = errors.sum(1) / np.maximum(2 * annotated.sum(1), 1)  # each wrong pixel is one of two classes' errors
    report.notes = [f'{100 * value:.1f} % of the pixels wrong' for value in wrong]
    report.add_section('Worst images')
    report.add_pictures(largest(wrong), 'Annotation and prediction of the images with the most wrong pixels.')
