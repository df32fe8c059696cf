"""What a segmentor gets wrong."""
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from matplotlib.figure import Figure

from .page import Cell, Report

BAND = 3  # pixels on each side of an annotated boundary that belong to its trimap band
GRID = 32  # cells of each side of the map of errors


def count(prediction: np.ndarray, annotation: np.ndarray, classes: int, ignore_index: int) -> dict[str, np.ndarray]:
    """Return what :func:`diagnose` needs of one image.

    Args:
        prediction, annotation: label maps (H, W).
        classes: number of them.
        ignore_index: annotated value that does not count.

    Returns:
        ``matrix`` (classes, classes), pixels by annotated and predicted class; ``band``, the same within ``BAND``
        pixels of a boundary between annotated classes; ``wrong`` and ``known``, pixels in a grid over the image.
    """
    known = (annotation != ignore_index) & (annotation < classes)
    height, width = annotation.shape
    kernel = np.ones((2 * BAND + 1, 2 * BAND + 1), np.uint8)
    values = annotation.astype(np.uint8)
    band = known & (cv2.dilate(values, kernel) != cv2.erode(values, kernel))

    def matrix(mask: np.ndarray) -> np.ndarray:
        pairs = annotation[mask].astype(np.int64) * classes + prediction[mask]
        return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)

    cells = (np.arange(height) * GRID // height)[:, None] * GRID + np.arange(width) * GRID // width

    def grid(mask: np.ndarray) -> np.ndarray:
        return np.bincount(cells[mask], minlength=GRID**2).reshape(GRID, GRID)

    wrong = known & (prediction != annotation)
    return dict(matrix=matrix(known), band=matrix(band), wrong=grid(wrong), known=grid(known))


def iou(matrix: np.ndarray) -> np.ndarray:
    """Return the IoU of each class of a confusion matrix (..., C, C); NaN of classes that do not occur."""
    hit = np.diagonal(matrix, axis1=-2, axis2=-1).astype(np.float64)
    union = matrix.sum(-1) + matrix.sum(-2) - hit
    return np.divide(hit, union, out=np.full(hit.shape, np.nan), where=union > 0)


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Add IoU, confusion, boundaries, worst images and the places of errors to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image as :func:`count` returns it.
        classes: their names.
    """
    matrices = np.stack([record['matrix'] for record in records])
    total, band = matrices.sum(0), sum(record['band'] for record in records)
    ious, accuracy = iou(total), np.diag(total) / np.maximum(total.sum(1), 1)
    report.summary.append(
        f'mIoU is {100 * np.nanmean(ious):.2f} %, pixel accuracy {100 * np.diag(total).sum() / total.sum():.2f} %, and '
        f'mIoU within {BAND} pixels of boundaries {100 * np.nanmean(iou(band)):.2f} % of {len(records)} images.')
    # Of a class, the images that cost it most: pixels that are missed or wrongly predicted.
    hits = np.diagonal(matrices, axis1=1, axis2=2)
    errors = matrices.sum(2) + matrices.sum(1) - 2 * hits

    def worst(cost: np.ndarray) -> np.ndarray:
        order = np.argsort(-cost, kind='stable')
        return order[cost[order] > 0]

    for image, matrix in zip(report.images, matrices):
        image['note'] = f'mIoU {100 * np.nanmean(iou(matrix)):.1f} %, ' \
                        f'{100 * (1 - np.diag(matrix).sum() / max(matrix.sum(), 1)):.1f} % of the pixels wrong'
    report.add_section('Classes')
    report.add_table(
        ['class', 'IoU, %', 'accuracy, %', 'IoU at boundaries, %', 'fraction of pixels, %', 'wrong pixels'],
        [[name, 100 * ious[k], 100 * accuracy[k], 100 * iou(band)[k], 100 * total[k].sum() / total.sum(),
          Cell(int(errors[:, k].sum()), worst(errors[:, k]))] for k, name in enumerate(classes)])
    report.add_section('Confusion', 'Pixels in percent of the annotated class. Rows are annotated, columns predicted.')
    share = total / np.maximum(total.sum(1, keepdims=True), 1)
    report.add_table(['', *classes], [
        [name, *(Cell(round(100 * share[row, column], 1), worst(matrices[:, row, column]) if row != column else (),
                      share[row, column]) for column in range(len(classes)))] for row, name in enumerate(classes)])
    report.add_section('Worst images')
    report.add_pictures(np.argsort([np.nanmean(iou(matrix)) if matrix.any() else 1. for matrix in matrices]),
                        'Annotation and prediction of the images with the lowest mIoU.')
    report.add_section('Places')
    figure = Figure((5, 4))
    axes = figure.subplots()
    wrong, known = (sum(record[key] for record in records) for key in ('wrong', 'known'))
    shown = axes.imshow(wrong / np.maximum(known, 1), vmin=0, extent=(0, 1, 1, 0), aspect='auto')
    axes.set(xlabel='x of the image', ylabel='y of the image')
    figure.colorbar(shown)
    report.add_figure(figure, 'Fraction of wrong pixels by their place in the image.')
    return dict(matrices=matrices)
