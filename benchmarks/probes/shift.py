"""Measure whether predictions stay when the image moves by 1 to 16 pixels.

Consistency is the fraction of images whose predicted class stays: Zhang 2019, "Making convolutional networks
shift-invariant again" (arXiv 1904.11486), who draws both shifts at random. Here the image moves right, then down, and
the mean of both is given.
"""
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .subject import Finding, NotApplicable, Subject, percent

PIXELS = (1, 2, 4, 8, 16)
KINDS = ('cyclic', 'cropped')  # pixels that leave enter at the other side, or a reflection enters
LEAST_SCORE = 0.3  # of the boxes that are followed


def move(images: Tensor, pixels: int, kind: str, axis: int) -> Tensor:
    """Return images moved along an axis.

    Args:
        images: (N, 3, H, W).
        pixels: distance; 0 changes nothing.
        kind: 'cyclic', where pixels enter again at the other side, or 'cropped', where a reflection enters.
        axis: 2 for down, 3 for right.
    """
    index = torch.arange(images.shape[axis]) - pixels
    return images.index_select(axis, index % len(index) if kind == 'cyclic' else index.abs())


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure consistency and the relative change of features, of detectors and segmentors what moves along."""
    classifier = subject.task == 'classification'
    measure = _classifier(subject) if classifier else _dense(subject)
    side = min(subject.images.shape[2:]) if classifier else min(min(array.shape[:2]) for array in subject.arrays)
    pixels = [shift for shift in PIXELS if shift < side]
    values = {kind: {str(shift): measure(shift, kind) for shift in pixels} for kind in KINDS}
    first = next(iter(values['cyclic']['1']))
    lines = {kind: [found[first] for found in values[kind].values()] for kind in KINDS}
    what = dict(classification='predictions stay', segmentation='pixels keep their label as it moves along',
                detection='overlap remains between boxes and those of the moved image')[subject.task]
    return Finding(
        f'When the image moves by 1 to {pixels[-1]} pixels, {min(lines["cropped"]):.1f} to '
        f'{max(lines["cropped"]):.1f} % of the {what}; when it moves cyclically, {min(lines["cyclic"]):.1f} to '
        f'{max(lines["cyclic"]):.1f} %.', values,
        {kind: (pixels, line) for kind, line in lines.items()}, ('shift in pixels', f'{first} (%)'))


def _classifier(subject: Subject) -> Any:
    logits, features = subject.run(subject.images)
    predicted = logits.argmax(1)

    def measure(pixels: int, kind: str) -> dict[str, float]:
        found = []
        for axis in (3, 2):
            moved, moved_features = subject.run(move(subject.images, pixels, kind, axis))
            change = (moved_features - features).norm(dim=1) / features.norm(dim=1)
            found.append((percent(moved.argmax(1) == predicted), percent(moved.argmax(1) == subject.labels),
                          100 * change.mean().item()))
        return dict(zip(('consistency', 'accuracy', 'change of features'),
                        (round(sum(column) / 2, 2) for column in zip(*found))))
    return measure


def _dense(subject: Subject) -> Any:
    before = [subject.predict(array) for array in subject.arrays]
    compare = _labels_kept if subject.task == 'segmentation' else _overlap
    if subject.task == 'detection' and not any((found.confidence >= LEAST_SCORE).any() for found in before):
        raise NotApplicable(f'follows boxes with a score of {LEAST_SCORE} or more, and there is none.')

    def measure(pixels: int, kind: str) -> dict[str, float]:
        found = []
        for array, prediction in zip(subject.arrays, before):
            moved = move(torch.from_numpy(np.ascontiguousarray(array)), pixels, kind, 1).numpy()
            found.append(compare(prediction, subject.predict(moved), pixels))
            subject.progress(1)
        return {'consistency': round(100 * float(np.nanmean(found)), 2)}
    return measure


def _labels_kept(before: np.ndarray, after: np.ndarray, pixels: int) -> float:
    return float((before[:, :before.shape[1] - pixels] == after[:, pixels:]).mean())


def _overlap(before: Any, after: Any, pixels: int) -> float:
    """Return the mean IoU of each box with the best one of its class, which moved along; NaN without boxes."""
    from supervision import box_iou_batch
    before = before[before.confidence >= LEAST_SCORE]
    if not len(before):
        return float('nan')
    back = after.xyxy - [pixels, 0, pixels, 0]
    same = before.class_id[:, None] == after.class_id
    return float(np.max(box_iou_batch(before.xyxy, back) * same, axis=1, initial=0.).mean())
