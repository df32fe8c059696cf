"""Compare two models on the same images."""
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from . import classification, detection, segmentation
from .page import Cell, Report, largest

RESAMPLES = 1000  # of the bootstrap


def bootstrap(statistic: Callable[[np.ndarray], np.ndarray], images: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the 2.5 and 97.5 percentiles of a statistic over resampled images.

    Args:
        statistic: ``weights (images, ) -> values``, where a weight is how often the image was drawn.
        images: number of them.
    """
    generator = np.random.default_rng(0)
    drawn = [statistic(np.bincount(generator.integers(0, images, images), minlength=images))
             for _ in tqdm(range(RESAMPLES), desc='comparison', unit=' resamples', leave=False, disable=None)]
    return tuple(np.nanpercentile(drawn, (2.5, 97.5), axis=0))


def statistic_of(task: Any, found: dict[str, Any], classes: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that maps weights of the images (N, ) to percentages, overall and for each class.

    Args:
        task: module of the task; it chooses accuracy, mIoU, or AP50 of boxes.
        found: what the task's module found in the predictions of one network.
        classes: number of classes.
    """
    if task is classification:
        one_hot = np.eye(classes)[found['labels']]
        hits = one_hot * found['correct'][:, None]

        def accuracy(weights: np.ndarray) -> np.ndarray:
            with np.errstate(invalid='ignore'):
                by_class = (weights @ hits) / (weights @ one_hot)
            return 100 * np.append(weights @ found['correct'] / weights.sum(), by_class)
        return accuracy
    if task is segmentation:
        # float64, because NumPy multiplies integers without BLAS
        flat = found['matrices'].reshape(len(found['matrices']), -1).astype(np.float64)

        def mean_iou(weights: np.ndarray) -> np.ndarray:
            matrix = (weights.astype(np.float64) @ flat).reshape(classes, classes)
            ious = segmentation.iou(*segmentation.count_classes(matrix))
            return _with_mean(ious)
        return mean_iou

    of_class = [found['detections'][found['detections'][:, 0] == k] for k in range(classes)]
    annotated = found['hit'] + found['missed']

    def precision(weights: np.ndarray) -> np.ndarray:
        values = [detection.average_precision(rows, number, weights[rows[:, 1].astype(int)])
                  for rows, number in zip(of_class, weights @ annotated)]
        return _with_mean(np.array(values))
    return precision


def _with_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean over the classes that have a value, then all values, in percent."""
    known = values[~np.isnan(values)]
    return 100 * np.append(known.mean() if len(known) else np.nan, values)


def compare(report: Report, task: Any, first: dict[str, Any], second: dict[str, Any], classes: Sequence[str]) -> None:
    """Add the difference between two models, with its interval, to a report of the first one.

    Args:
        report: report of the first network.
        task: module of the task.
        first, second: what the task's ``diagnose`` returned, of the same images in the same order.
        classes: class names.
    """
    if task is classification:  # a list of images names no class
        classes = [*classes, *map(str, range(len(classes), first['classes']))]
    name = {classification: 'accuracy', segmentation: 'mIoU'}.get(task, 'box AP50')
    one, other = (statistic_of(task, found, len(classes)) for found in (first, second))
    images = len(next(iter(first.values())))
    every = np.ones(images)
    low, high = bootstrap(lambda weights: one(weights) - other(weights), images)
    difference = one(every) - other(every)
    beyond = low[0] > 0 or high[0] < 0
    report.summary.insert(0, f'The {name} of the first network minus that of the second is {difference[0]:+.2f} '
                             f'points, with a 95 % interval from {low[0]:+.2f} to {high[0]:+.2f}. This difference is '
                             f'{"beyond" if beyond else "within"} chance.')
    report.add_section('Comparison', f'The {name} of all images and of each class in percent, with the 95 % interval '
                       f'of the difference from {RESAMPLES} resamples of the images.')
    report.add_table(['', 'first', 'second', 'difference', 'from', 'to'], [
        [label, *row] for label, *row in zip(['all', *classes], one(every), other(every), difference, low, high)])
    gain = _score(task, first) - _score(task, second)
    report.add_table(['images on which', 'images'], [
        ['the first network is better', Cell(int((gain > 0).sum()), largest(gain))],
        ['the second network is better', Cell(int((gain < 0).sum()), largest(-gain))]])


def _score(task: Any, found: dict[str, Any]) -> np.ndarray:
    """Return the quality of each image's prediction."""
    if task is classification:
        return found['correct'].astype(float)
    if task is segmentation:
        return np.array([np.trace(matrix) / max(matrix.sum(), 1) for matrix in found['matrices']])
    return -(found['missed'] + found['false']).sum(1).astype(float)
