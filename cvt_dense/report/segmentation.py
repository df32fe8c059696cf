"""Report the errors of a segmentor."""
import warnings
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


def iou(hit: np.ndarray, annotated: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return the IoU of each class, NaN for classes that do not occur.

    Args:
        hit: correct pixels of each class.
        annotated, predicted: pixels of each class in the annotations and in the predictions.
    """
    union = annotated + predicted - hit
    return np.divide(hit, union, out=np.full(hit.shape, np.nan), where=union > 0)


def count_classes(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the arguments of :func:`iou`, each (..., C), from confusion matrices (..., C, C)."""
    return np.diagonal(matrices, axis1=-2, axis2=-1).astype(np.int64), matrices.sum(-1), matrices.sum(-2)


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add IoU, confusion and worst images to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``matrix``, the result of :func:`count`.
        classes: class names.
    """
    matrices = np.stack([record['matrix'] for record in records])
    total = matrices.sum(0)
    if not total.any():
        report.summary.append(f'No pixel of the {len(records)} images counts: all have the ignored value.')
        return
    counts, whole = count_classes(matrices), count_classes(total)
    ious, mean = iou(*whole), np.nanmean(iou(*whole))
    accuracy = np.divide(whole[0], whole[1], out=np.full(len(classes), np.nan), where=whole[1] > 0)
    report.summary.append(f'mIoU is {100 * mean:.2f} %, pixel accuracy {100 * whole[0].sum() / total.sum():.2f} % of '
                          f'{len(records)} images.')

    # Of a class, the images that cost it most: pixels that are missed or wrongly predicted.
    errors = counts[1] + counts[2] - 2 * counts[0]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # NumPy warns of a mean without a class, as of one image
        others = [of_all - of_image for of_all, of_image in zip(whole, counts)]
        loss = 100 * (np.nanmean(iou(*others), axis=1) - mean)
    for i, image in enumerate(report.images):
        image['note'] = f'{100 * (1 - counts[0][i].sum() / max(counts[1][i].sum(), 1)):.1f} % of the pixels wrong'
        if not np.isnan(loss[i]):
            image['note'] += f', mIoU without this image {loss[i]:+.3f}'
    report.add_section('Classes')
    report.add_table(['class', 'IoU, %', 'accuracy, %', 'fraction of pixels, %', 'wrong pixels'], [
        [name, 100 * ious[k], 100 * accuracy[k], 100 * whole[1][k] / total.sum(),
         Cell(errors[:, k].sum(), largest(errors[:, k]))] for k, name in enumerate(classes)])
    report.add_section('Confusion', 'Pixels in percent of the annotated class. Rows are annotated, columns predicted.')
    report.add_confusion(total, classes, lambda row, column: largest(matrices[:, row, column]), percent=True)
    report.add_section('Worst images')
    report.add_pictures(largest(np.nan_to_num(loss)), 'Annotation and prediction of images that cost the most mIoU.')
