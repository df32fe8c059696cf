"""Does a file give what PyTorch gives? Runs both and compares."""
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

# Largest difference over the largest value of an output. int8 is judged by metrics: this finds what is broken.
TOLERANCES = dict(fp32=1e-3, fp16=3e-2, bf16=0.15, int8=0.6)


class Difference(NamedTuple):
    """Of one output.

    Attributes:
        name: of the output.
        shape: of the output.
        largest: difference; of labels, the share of places with another one.
        relative: the same over the largest value; of labels the same again.
    """
    name: str
    shape: tuple[int, ...]
    largest: float
    relative: float


def random_images(size: tuple[int, int], batch: int = 1, seed: int = 0, channels: int = 3) -> Tensor:
    """Smooth random pictures: uint8 (B, channels, H, W), RGB."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, channels, 6, 6, generator=generator) * 255
    fine = torch.rand(batch, channels, *size, generator=generator) * 32
    return (F.interpolate(coarse, size, mode='bilinear') * 0.87 + fine).to(torch.uint8)


def compare(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> list[Difference]:
    """Differences of every output; infinite where shapes differ or a value is not finite."""
    differences = []
    for name, right in expected.items():
        given = actual[name]
        if given.shape != right.shape or not torch.isfinite(given.float()).all():
            largest = relative = float('inf')
        elif not right.is_floating_point():
            largest = relative = (given != right).float().mean().item()
        else:
            largest = (given - right).abs().max().item()
            relative = largest / max(right.abs().max().item(), 1e-6)
        differences.append(Difference(name, tuple(given.shape), largest, relative))
    return differences


def compare_detections(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> list[Difference]:
    """Differences of a detector's outputs, each box beside the most similar one of the other side.

    Two boxes whose scores are all but equal may change places, and one of two that overlap as much as suppression
    allows may win on either side. ``unmatched`` is therefore the share of boxes, weighted by their score, without a
    partner of the same label and an overlap of 0.9; the differences are of the others.
    """
    if not all(torch.isfinite(value.float()).all() for value in actual.values()):
        return [Difference('not finite', (len(expected['scores']), ), float('inf'), float('inf'))]
    scores = expected['scores']
    matched, partner = _partners(actual, expected)
    back, _ = _partners(expected, actual)
    lost = scores[~matched].sum() + actual['scores'][~back].sum()
    unmatched = (lost / max(float(scores.sum() + actual['scores'].sum()), 1e-6)).item()
    differences = [Difference('unmatched', (len(scores), ), unmatched, unmatched)]
    for name in (name for name in expected if name != 'labels'):
        given, right = actual[name][partner[matched]], expected[name][matched]
        largest = (given - right).abs().max().item() if len(right) else 0.
        scale = expected['boxes'].abs().max().item() if name == 'boxes' and len(scores) else 1.
        # Of a mask the mean counts: a pixel at its edge may be either.
        relative = (given - right).abs().mean().item() if name == 'masks' and len(right) else largest / max(scale, 1e-6)
        differences.append(Difference(name, tuple(actual[name].shape), largest, relative))
    return differences


def _partners(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """For each expected box: whether there is a partner, and its index."""
    a, b = expected['boxes'][:, None], actual['boxes'][None]
    if not a.numel() or not b.numel():
        return torch.zeros(len(expected['boxes']), dtype=torch.bool), torch.zeros(len(expected['boxes'])).long()
    sides = (torch.minimum(a[..., 2:], b[..., 2:]) - torch.maximum(a[..., :2], b[..., :2])).clamp(min=0)
    areas = [(x[..., 2:] - x[..., :2]).prod(-1) for x in (a, b)]
    overlap = sides.prod(-1)
    overlap = overlap / (areas[0] + areas[1] - overlap).clamp(min=1e-6)
    overlap[expected['labels'][:, None] != actual['labels'][None]] = 0
    best, partner = overlap.max(dim=1)
    return best >= 0.9, partner


def check(run: Callable[[Tensor], dict[str, Tensor]], reference: Callable[[Tensor], dict[str, Tensor]],
          images: Sequence[Tensor], precision: str, report: Callable[[str], None] = print) -> bool:
    """Compares a file with PyTorch on each of ``images`` and reports a line for each output.

    Args:
        run: the file; raw images, uint8 (B, 3, H, W), RGB, to outputs by name.
        reference: PyTorch; the same.
        images: of every size that is to be tried.
        precision: of the file; says what is tolerated.
        report: takes a line.

    Returns:
        Whether it runs and every difference is within ``TOLERANCES[precision]``.
    """
    worst, boxes = 0., 0
    for image in images:
        expected = reference(image)
        boxes += len(expected.get('boxes', ()))
        try:
            actual = run(image)
        except Exception as error:  # each runtime has exceptions of its own
            reason = ' '.join(str(error).split())[:300]
            report(f'  {"x".join(map(str, image.shape[2:])):>9}, batch {len(image)}: it does not run: {reason}')
            return False
        detections = 'boxes' in expected
        found = (compare_detections if detections else compare)(actual, expected)
        for name, shape, largest, relative in found:
            report(f'  {"x".join(map(str, image.shape[2:])):>9}, batch {len(image)}: {name:<9} '
                   f'{"x".join(map(str, shape)):<18} largest difference {largest:.2e}, '
                   f'{relative:.2e} of the largest value')
        worst = max([worst, *(difference.relative for difference in found)])
    if 'boxes' in expected and not boxes:
        report('  nothing is detected in these images, so boxes were not compared: --evaluate compares the metrics')
    report(f'  {"within" if worst <= TOLERANCES[precision] else "ABOVE"} the tolerance of {precision}, '
           f'{TOLERANCES[precision]:g} of the largest value')
    return worst <= TOLERANCES[precision]
