"""Report the errors of a classifier."""
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.calibration import calibration_curve
from sklearn.manifold import TSNE
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support, top_k_accuracy_score

from .page import Cell, Report

BINS = 15  # of the reliability curve, as in Guo et al. 2017, "On calibration of modern neural networks"
EMBEDDED = 2000  # images of which t-SNE draws the features


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
    probabilities = np.stack([record['probabilities'] for record in records])
    classes = [*classes, *map(str, range(len(classes), probabilities.shape[1]))]  # outputs without a name
    predicted, confidence = probabilities.argmax(1), probabilities.max(1)
    numbers = np.arange(len(classes))
    correct = predicted == labels
    for i, image in enumerate(report.images):
        image['note'] = f'{classes[labels[i]]}, predicted {classes[predicted[i]]} ({confidence[i]:.2f})'

    top = {1: 100. * float(correct.mean())}
    if len(classes) > 5:
        top[5] = 100. * float(top_k_accuracy_score(labels, probabilities, k=5, labels=numbers))
    report.summary.append(', '.join(f'Top-{k} is {value:.2f} %' for k, value in top.items())
                          + f' of {len(records)} images.')

    report.add_section('Classes')
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted, labels=numbers, zero_division=0)
    most_confident = np.argsort(-confidence, kind='stable')

    def select(chosen: np.ndarray) -> np.ndarray:
        return most_confident[chosen[most_confident]]

    missed, taken = ([select(~correct & (kind == k)) for k in numbers] for kind in (labels, predicted))
    report.add_table(
        ['class', 'images', 'precision', 'recall', 'F1', 'missed', 'wrongly predicted'],
        [[classes[k], int(support[k]), precision[k], recall[k], f1[k], Cell(len(missed[k]), missed[k]),
          Cell(len(taken[k]), taken[k])] for k in np.argsort(f1, kind='stable')], 'The lowest F1 comes first.')

    report.add_section('Confusion', 'Rows are annotated classes, columns predicted ones.')
    report.add_confusion(confusion_matrix(labels, predicted, labels=numbers), classes,
                         lambda row, column: select((labels == row) & (predicted == column)))

    report.add_section('Calibration')
    bins = np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence)  # as calibration_curve has them
    filled, counts = np.unique(bins, return_counts=True)
    accuracy, mean_confidence = calibration_curve(correct, confidence, n_bins=BINS)
    error = float((np.abs(mean_confidence - accuracy) * counts).sum() / len(records))
    report.add_table(['', ''], [['expected calibration error', error], ['mean confidence', float(confidence.mean())],
                                ['accuracy', float(correct.mean())]])
    figure = Figure((4, 4))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], ':', color='grey')
    axes.plot(mean_confidence, accuracy, 'o-')
    axes.set(xlabel='confidence', ylabel='accuracy', xlim=(0, 1), ylim=(0, 1))
    report.add_figure(figure, f'Accuracy in {BINS} bins of confidence. Below the diagonal the network is too '
                      'confident.')
    wrong = [select(~correct & (bins == k)) for k in filled]
    report.add_table(['confidence', 'accuracy', 'images', 'mistakes'], list(zip(
        mean_confidence, accuracy, counts, (Cell(len(images), images) for images in wrong))))

    report.add_section('Mistakes and suspects')
    report.add_pictures(select(~correct), 'The most confident mistakes.')
    suspects = label_suspects(labels, probabilities)
    report.add_pictures(suspects, 'Images whose annotated class has the lowest probability. Their labels may be wrong.')

    chosen = np.random.default_rng(0).permutation(len(records))[:EMBEDDED]
    features = np.stack([records[i]['feature'] for i in chosen]).astype(np.float32)
    if len(records) >= 10 and np.isfinite(features).all() and np.ptp(features, axis=0).any():  # t-SNE needs both
        report.add_section('Embedding')
        points = TSNE(perplexity=min(30, (len(chosen) - 1) / 3), init='pca', random_state=0).fit_transform(features)
        figure = Figure((8, 6))
        axes = figure.subplots()
        colored = axes.scatter(*points.T, c=labels[chosen], cmap='tab20', s=6)
        if len(classes) <= 20:
            handles, shown = colored.legend_elements(num=None)
            axes.legend(handles, [classes[k] for k in np.unique(labels[chosen])][:len(shown)], fontsize=7)
        axes.set(xticks=[], yticks=[])
        report.add_figure(figure, f'The pooled features of {len(chosen)} images by t-SNE, coloured by annotated class.')
    return dict(correct=correct, labels=labels, top1=top[1], ece=error, suspects=suspects, classes=len(classes))


def label_suspects(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the images in the order of the probability of their own label, lowest first (self-confidence).

    Northcutt et al. 2021, "Confident learning". The network must not have been trained on these images, or it will
    have learned the wrong labels.
    """
    return np.argsort(probabilities[np.arange(len(labels)), labels], kind='stable')
