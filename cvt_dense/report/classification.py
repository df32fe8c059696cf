"""Report the errors of a classifier."""
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from .page import Cell, Report


def diagnose(report: Report, records: Sequence[dict[str, Any]], classes: Sequence[str]) -> None:
    """Add accuracy, confusion, confident mistakes and suspect labels to a report.

    Args:
        report: image ``i`` of it is record ``i``.
        records: one dict per image with ``label`` int and ``probabilities`` (C, ).
        classes: names of the C classes.
    """
    labels = np.array([record['label'] for record in records])
    probabilities = np.stack([record['probabilities'] for record in records])
    classes = [*classes, *map(str, range(len(classes), probabilities.shape[1]))]  # outputs without a name
    predicted, confidence = probabilities.argmax(1), probabilities.max(1)
    order = np.argsort(-confidence, kind='stable')

    def most_confident(chosen: np.ndarray) -> np.ndarray:
        """Return the numbers of the images that a mask chooses, the most confident one first."""
        return order[chosen[order]]

    report.notes = [f'{classes[label]}, predicted {classes[guess]} ({score:.2f})'
                    for label, guess, score in zip(labels, predicted, confidence)]
    report.summary.append(f'Top-1 is {100 * np.mean(labels == predicted):.2f} % of {len(labels)} images.')

    numbers, wrong = np.arange(len(classes)), labels != predicted
    precision, recall, f1, support = precision_recall_fscore_support(labels, predicted, labels=numbers, zero_division=0)
    missed, taken = ([most_confident(wrong & (kind == k)) for k in numbers] for kind in (labels, predicted))
    report.add_section('Classes', 'The lowest F1 comes first.')
    report.add_table(
        ['class', 'images', 'precision', 'recall', 'F1', 'missed', 'wrongly predicted'],
        [[classes[k], support[k], precision[k], recall[k], f1[k], Cell(len(missed[k]), missed[k]),
          Cell(len(taken[k]), taken[k])] for k in np.argsort(f1, kind='stable')])
    report.add_confusion(confusion_matrix(labels, predicted, labels=numbers), classes,
                         lambda row, column: most_confident((labels == row) & (predicted == column)))
    report.add_section('Mistakes and suspects', 'Labels may be wrong where the annotated class has a low probability '
                       '(self-confidence, Northcutt et al. 2021, "Confident learning"). The network must not have been '
                       'trained on these images, or it will have learned the wrong labels.')
    report.add_pictures(most_confident(wrong), 'The most confident mistakes.')
    suspects = np.argsort(probabilities[np.arange(len(labels)), labels], kind='stable')
    report.add_pictures(suspects, 'Images whose annotated class has the lowest probability. Their labels may be wrong.')
