"""Compare confidence with accuracy: of the network, with active drop path, and of an ensemble.

Expected calibration error in 15 bins: Guo et al. 2017 (arXiv 1706.04599). Monte-Carlo dropout averages the
probabilities of passes in which dropout and drop path are active: Gal and Ghahramani 2016 (arXiv 1506.02142). Deep
ensembles: Lakshminarayanan et al. 2017 (arXiv 1612.01474).
"""
from collections.abc import Sequence

import torch
from timm.layers import DropPath
from torch import Tensor, nn

from .subject import Finding, Subject, percent

BINS = 15
PASSES = 10


def reliability(probabilities: Tensor, labels: Tensor) -> tuple[float, list[float], list[float]]:
    """Return the expected calibration error in percent, and confidence and accuracy of each bin that has images."""
    confidence, predicted = probabilities.double().max(dim=1)
    hits = (predicted == labels).double()
    bins = (confidence * BINS).long().clamp(max=BINS - 1)
    filled = [bins == number for number in range(BINS) if (bins == number).any()]
    means = [(confidence[part].mean().item(), hits[part].mean().item()) for part in filled]
    error = sum(abs(sure - right) * part.double().mean().item() for (sure, right), part in zip(means, filled))
    return 100 * error, [100 * sure for sure, _ in means], [100 * right for _, right in means]


def drawn(subject: Subject) -> Tensor | None:
    """Return probabilities averaged over passes with active dropout and drop path; None if the network has none."""
    active = [module for module in subject.network.modules()
              if isinstance(module, (DropPath, nn.Dropout)) and getattr(module, 'drop_prob', getattr(module, 'p', 0))]
    if not active:
        return None
    torch.manual_seed(0)
    try:
        for module in active:
            module.train()
        return torch.stack([subject.run(subject.images)[0].softmax(1) for _ in range(PASSES)]).mean(dim=0)
    finally:
        for module in active:
            module.eval()


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure accuracy and calibration error of each way to predict."""
    subject.classifier_only()
    single = subject.run(subject.images)[0].softmax(1)
    found = {'one pass': single, 'Monte-Carlo': drawn(subject)}
    if others:
        found['ensemble'] = torch.stack([single, *(other.run(other.images)[0].softmax(1) for other in others)]).mean(0)
    values, curves = {}, {'': ([0, 100], [0, 100])}
    for name, probabilities in found.items():
        if probabilities is not None:
            error, confidence, accuracy = reliability(probabilities, subject.labels)
            values[name] = {'accuracy': percent(probabilities.argmax(1) == subject.labels), 'ECE': round(error, 2)}
            curves[name] = confidence, accuracy
    errors = [f'{name} {row["ECE"]:.1f} % at a top-1 of {row["accuracy"]:.1f} %' for name, row in values.items()]
    without = '' if found['Monte-Carlo'] is not None else ' It has neither dropout nor drop path.'
    return Finding(f'Calibration error: {", ".join(errors)}.{without}', values, curves,
                   ('confidence (%)', 'accuracy (%)'))
