"""What a classifier gets wrong."""
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, top_k_accuracy_score

from .page import Cell, Report

BINS = 15  # of the reliability curve, as in Guo et al. 2017, "On calibration of modern neural networks"
EMBEDDED = 2000  # images of which t-SNE draws the features
LARGEST_MATRIX = 60  # classes of which the whole confusion matrix is shown


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> dict[str, Any]:
    """Add accuracy, confusion, calibration, confident mistakes, suspect labels and an embedding to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``label`` int, ``probabilities`` (C, ) and ``feature`` (D, ).
        classes: names of the C classes.

    Returns:
        dict with ``correct``, bool for each image, and ``labels``, which :mod:`cvt_dense.report.compare` needs.
    """
    labels = np.array([record['label'] for record in records])
    probabilities = np.stack([record['probabilities'] for record in records]).astype(np.float64)
    predicted, confidence = probabilities.argmax(1), probabilities.max(1)
    numbers = np.arange(len(classes))
    correct = predicted == labels
    for i, image in enumerate(report.images):
        image['note'] = f'{classes[labels[i]]}, predicted {classes[predicted[i]]} ({confidence[i]:.2f})'

    top = {k: 100. * float(top_k_accuracy_score(labels, probabilities, k=k, labels=numbers))
           for k in (1, 5) if k < len(classes) > 2} or {1: 100. * float(correct.mean())}
    report.summary.append(', '.join(f'Top-{k} is {value:.2f} %' for k, value in top.items())
                          + f' of {len(records)} images.')

    report.add_section('Classes')
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted, labels=numbers, zero_division=0)
    wrong_of = [np.flatnonzero(~correct & (labels == k)) for k in numbers]
    taken_for = [np.flatnonzero(~correct & (predicted == k)) for k in numbers]
    report.add_table(
        ['class', 'images', 'precision', 'recall', 'F1', 'missed', 'wrongly predicted'],
        [[classes[k], int(support[k]), precision[k], recall[k], f1[k], Cell(len(wrong_of[k]), wrong_of[k]),
          Cell(len(taken_for[k]), taken_for[k])] for k in np.argsort(f1, kind='stable')], 'The lowest F1 comes first.')

    report.add_section('Confusion', 'Rows are annotated classes, columns predicted ones.')
    matrix = confusion_matrix(labels, predicted, labels=numbers)

    def cell(row: int, column: int) -> Cell:
        images = np.flatnonzero((labels == row) & (predicted == column))
        return Cell(int(matrix[row, column]), images[np.argsort(-confidence[images])],
                    matrix[row, column] / max(matrix[row].sum(), 1))

    if len(classes) <= LARGEST_MATRIX:
        report.add_table(['', *classes], [[name, *(cell(row, column) for column in numbers)]
                                          for row, name in enumerate(classes)])
    else:
        off = matrix * (1 - np.eye(len(classes), dtype=matrix.dtype))
        pairs = np.argsort(-off, axis=None, kind='stable')[:LARGEST_MATRIX]
        report.add_table(['annotated', 'predicted', 'images'], [
            [classes[row], classes[column], cell(row, column)]
            for row, column in zip(*np.unravel_index(pairs, off.shape)) if off[row, column]])

    report.add_section('Calibration')
    edges = np.linspace(0, 1, BINS + 1)
    bins = np.clip(np.digitize(confidence, edges[1:-1]), 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    filled = counts > 0
    mean_confidence = np.bincount(bins, confidence, BINS)[filled] / counts[filled]
    accuracy = np.bincount(bins, correct, BINS)[filled] / counts[filled]
    error = float((np.abs(mean_confidence - accuracy) * counts[filled]).sum() / len(records))
    report.add_table(['', ''], [['expected calibration error', error], ['mean confidence', float(confidence.mean())],
                                ['accuracy', float(correct.mean())]])
    figure = Figure((4, 4))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ':', color='grey')
    axes.plot(mean_confidence, accuracy, 'o-')
    axes.set(xlabel='confidence', ylabel='accuracy', xlim=(0, 1), ylim=(0, 1))
    report.add_figure(figure, f'Accuracy in {BINS} bins of confidence. Below the diagonal it is too confident.')

    report.add_section('Mistakes and suspects')
    mistakes = np.flatnonzero(~correct)
    report.add_pictures(mistakes[np.argsort(-confidence[mistakes])], 'The most confident mistakes.')
    suspects = label_suspects(labels, probabilities)
    report.add_pictures(suspects, 'Images whose annotated class has the lowest probability. Their labels may be wrong.')

    if len(records) >= 10:
        report.add_section('Embedding')
        chosen = np.random.default_rng(0).permutation(len(records))[:EMBEDDED]
        features = np.stack([records[i]['feature'] for i in chosen]).astype(np.float32)
        points = TSNE(perplexity=min(30, (len(chosen) - 1) / 3), init='pca', random_state=0).fit_transform(features)
        figure = Figure((7, 6))
        axes = figure.subplots()
        axes.scatter(*points.T, c=labels[chosen], cmap='tab20', s=6)
        axes.set(xticks=[], yticks=[])
        report.add_figure(figure, f'The pooled features of {len(chosen)} images by t-SNE, coloured by annotated class.')
    return dict(correct=correct, labels=labels, top1=top[1], ece=error, suspects=suspects)


def label_suspects(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the images in the order of the probability of their own label, lowest first (self-confidence).

    Northcutt et al. 2021, "Confident learning". The network must not have been trained on these images, or it will
    have learned the wrong labels.
    """
    return np.argsort(probabilities[np.arange(len(labels)), labels], kind='stable')
