"""Compare the outputs of an exported file with PyTorch's."""
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# Largest relative error of an output, |a - b| / |b| in the 2-norm; of labels and boxes the fraction that differs.
TOLERANCES = dict(fp32=1e-3, fp16=0.02, bf16=0.05, int8=0.05)
# A box whose score is close to a threshold or to another box's may come or go, which means little for its network.
BOX_TOLERANCES = dict(fp32=1e-3, fp16=0.03, bf16=0.15, int8=0.3)


def random_images(size: tuple[int, int], batch: int = 1, seed: int = 0, channels: int = 3) -> Tensor:
    """Return smooth random images, uint8 (batch, channels, H, W).

    Args:
        size: (H, W) in pixels.
        batch: number of images.
        seed: seed of the random numbers.
        channels: channels of an image.
    """
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(batch, channels, 6, 6, generator=generator) * 255
    fine = torch.rand(batch, channels, *size, generator=generator) * 32
    return (F.interpolate(coarse, size, mode='bilinear') * 0.87 + fine).to(torch.uint8)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return |actual - expected| / |expected| in the 2-norm."""
    return ((actual.float() - expected.float()).norm() / expected.float().norm().clamp(min=1e-12)).item()


def compare(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return each output's difference; infinite where shapes differ or a value is not finite."""
    differences = {}
    for name, right in expected.items():
        given = actual[name]
        if given.shape != right.shape or not torch.isfinite(given.float()).all():
            differences[name] = float('inf')
        elif right.is_floating_point():
            differences[name] = relative_error(given, right)
        else:
            differences[name] = (given != right).float().mean().item()
    return differences


def compare_detections(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Return the differences of a detector's outputs, each box beside the most similar one of the other side.

    Two boxes whose scores are all but equal may change places, and one of two that overlap as much as suppression
    allows may win on either side. ``unmatched`` is therefore the fraction of boxes, weighted by their score, without a
    partner of the same label and an overlap of 0.9; the differences are of the others.
    """
    if not all(torch.isfinite(value.float()).all() for value in actual.values()):
        return dict(unmatched=float('inf'))
    scores = expected['scores']
    matched, partner = _partners(actual, expected)
    back, _ = _partners(expected, actual)
    lost = scores[~matched].sum() + actual['scores'][~back].sum()
    differences = dict(unmatched=(lost / (scores.sum() + actual['scores'].sum()).clamp(min=1e-6)).item())
    if matched.any():
        differences.update({name: relative_error(actual[name][partner[matched]], right[matched])
                            for name, right in expected.items() if name != 'labels'})
    return differences


def _partners(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return for each expected box whether it has a partner, and the partner's index."""
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
    """Compare a file with PyTorch on each of ``images`` and report a line for each output.

    Args:
        run: the file; normalised images, float32 (B, C, H, W), to outputs by name.
        reference: PyTorch; the same.
        images: images of every size that is to be tried.
        precision: precision of the file; it sets the tolerance.
        report: takes a line.

    Returns:
        Whether the file runs and every difference is within the tolerance.
    """
    good, boxes, detector = True, 0, False
    for image in images:
        what = f'{"x".join(map(str, image.shape[2:])):>9}, batch {len(image)}'
        expected = reference(image)
        detector = 'boxes' in expected
        boxes += len(expected['boxes']) if detector else 0
        try:
            actual = run(image)
        except Exception as error:  # each runtime has its own exceptions
            report(f'  {what}: it does not run: {" ".join(str(error).split())[:300]}')
            return False
        tolerance = (BOX_TOLERANCES if detector else TOLERANCES)[precision]
        for name, difference in (compare_detections if detector else compare)(actual, expected).items():
            within = difference <= tolerance
            report(f'  {what}: {name:<9} relative difference {difference:.2e}, {"within" if within else "ABOVE"} the '
                   f'tolerance of {precision}, {tolerance:g}')
            good &= within
    if detector and not boxes:
        report('  nothing is detected in these images, so boxes were not compared: --evaluate compares the metrics')
    return good
