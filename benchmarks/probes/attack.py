"""Accuracy under attacks whose change of each pixel is bounded.

FGSM: Goodfellow et al. 2015 (arXiv 1412.6572); PGD: Madry et al. 2018 (arXiv 1706.06083), 20 steps from a random start,
each of 2.5 times the radius over their number. An image that a smaller radius fools is not attacked again, because the
smaller ball lies inside the larger. Two checks of Athalye et al. 2018 (arXiv 1802.00420) show whether gradients are
masked: more steps must not be worse, and images that were made on another network must be weaker.
"""
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .subject import BATCH, Finding, Subject, percent

RADII = (1, 2, 4, 8)  # of 255
STEPS = 20
CHECKED = 200  # images of the two checks
NOISE = 2.  # percent of the checked images by which more steps may be worse, since starts are random


def pgd(forward: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, radius: float, steps: int = STEPS
        ) -> Tensor:
    """Return images that raise the loss; with 0 steps the images themselves.

    Args:
        forward: ``pixels (N, 3, H, W) from 0 to 255 -> logits``.
        images: (N, 3, H, W), from 0 to 255.
        labels: (N, ).
        radius: largest change of a pixel.
        steps: number of steps of the ascent.
    """
    images = images.float()
    low, high = (images - radius).clamp(min=0), (images + radius).clamp(max=255)
    moved = images
    if steps:
        start = torch.rand(images.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
        moved = torch.clamp(images + radius * start, low, high)
    for _ in range(steps):
        moved = torch.clamp(moved + 2.5 * radius / steps * _direction(forward, moved, labels), low, high)
    return moved


def fgsm(forward: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor, radius: float) -> Tensor:
    """Return images after one step from the image itself, as long as the radius.

    Args:
        forward, images, labels, radius: as in :func:`pgd`.
    """
    return (images + radius * _direction(forward, images.float(), labels)).clamp(0, 255)


def _direction(forward: Callable[[Tensor], Tensor], images: Tensor, labels: Tensor) -> Tensor:
    images = images.detach().requires_grad_()
    logits = forward(images)
    loss = F.cross_entropy(logits, labels.to(logits.device), reduction='sum')
    return torch.autograd.grad(loss, images)[0].sign()


def attack(subject: Subject, method: Callable[..., Tensor], images: Tensor, labels: Tensor, radius: float) -> Tensor:
    """Return the attacked images, computed a batch at a time.

    Args:
        subject: the network.
        method: :func:`pgd` or :func:`fgsm`.
        images: (N, 3, H, W), from 0 to 255.
        labels: (N, ).
        radius: largest change of a pixel.
    """
    return torch.cat([method(subject.forward, batch, of_batch, radius)
                      for batch, of_batch in zip(images.split(BATCH), labels.split(BATCH))])


def probe(subject: Subject, others: Sequence[Subject]) -> Finding:
    """Measure accuracy over the radius, and check that gradients are not masked."""
    subject.classifier_only()
    images, labels = subject.images, subject.labels
    right = subject.run(images)[0].argmax(1) == labels
    values: dict[str, dict] = {}
    for name, method in (('FGSM', fgsm), ('PGD', pgd)):
        standing, values[name] = right.clone(), {'0': percent(right)}
        for radius in RADII:
            rest = standing.nonzero()[:, 0]
            if len(rest):
                found = subject.run(attack(subject, method, images[rest], labels[rest], radius))[0].argmax(1)
                standing[rest] = found == labels[rest]
            values[name][str(radius)] = percent(standing)
    values['checks'] = checks = _checks(subject, others)
    sentence = (f'Top-1 of {values["PGD"]["0"]:.1f} % falls to {values["FGSM"]["1"]:.1f} % by FGSM and '
                f'{values["PGD"]["1"]:.1f} % by PGD at 1/255, and to {values["PGD"]["4"]:.1f} % by PGD at 4/255; '
                f'more steps are {"not " if checks["more steps are not worse"] else ""}worse')
    if 'transfer is weaker' in checks:
        sentence += f', and transfer is {"" if checks["transfer is weaker"] else "not "}weaker'
    radii = [0, *RADII]
    return Finding(f'{sentence}.', values,
                   {name: (radii, list(values[name].values())) for name in ('FGSM', 'PGD')},
                   ('radius / 255', 'top-1 (%)'))


def _checks(subject: Subject, others: Sequence[Subject]) -> dict[str, object]:
    chosen = torch.linspace(0, len(subject.labels) - 1, min(CHECKED, len(subject.labels))).long()
    labels = subject.labels[chosen]

    def accuracy(attacker: Subject, radius: float, steps: int) -> float:
        moved = attack(attacker, partial(pgd, steps=steps), attacker.images[chosen], labels, radius)
        return percent(subject.run(moved)[0].argmax(1) == labels)

    by_steps = {str(steps): accuracy(subject, 1, steps) for steps in (5, STEPS, 2 * STEPS)}
    lines = list(by_steps.values())
    found: dict[str, object] = {'top-1 by steps at 1/255': by_steps, 'more steps are not worse': all(
        later <= earlier + NOISE for earlier, later in zip(lines, lines[1:]))}
    same = [other for other in others if other.images.shape == subject.images.shape]
    if same:
        transferred = {other.name: accuracy(other, 4, STEPS) for other in same}
        own = accuracy(subject, 4, STEPS)
        found.update({'top-1 by transfer at 4/255': transferred, 'top-1 by its own gradient at 4/255': own,
                      'transfer is weaker': all(value >= own for value in transferred.values())})
    return found
