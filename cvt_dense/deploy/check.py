"""Compare the outputs of an exported file with PyTorch's."""
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_iou

from ..errors import UserError, cause

# Largest relative error of an output, |a - b| / |b| in the 2-norm; of labels the fraction that differs. Weights of 7
# bits round twice as coarsely as those of 8, which were allowed 0.05. Their sums are exact integers on every CPU, so
# that each judges a file alike; what overflows in 16 bits was 0.4 off.
TOLERANCES = dict(fp32=1e-3, bf16=0.05, int8=0.1)
# Of detectors: a box whose score is close to a threshold or to another box's may appear on one side only.
DETECTOR_TOLERANCES = dict(fp32=1e-3, bf16=0.15, int8=0.3)


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


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return |actual - expected| / |expected| in the 2-norm, of integers the fraction that differs.

    It is infinite where shapes differ or a value is not finite.
    """
    if actual.shape != expected.shape or not torch.isfinite(actual.float()).all():
        return float('inf')
    if not expected.is_floating_point():
        return (actual != expected).float().mean().item()
    return ((actual - expected).norm() / expected.norm().clamp(min=1e-12)).item()


def compare_detections(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """Match the boxes of two detectors' outputs, and return the differences of the matched boxes.

    Two boxes whose scores are all but equal may change places, and one of two that overlap as much as suppression
    allows may win on either side. The first difference is therefore the fraction of boxes, weighted by their
    score, without a partner of the same label and an overlap of 0.9; the others are of the boxes that have one.
    """
    matched, partner = _partners(actual, expected)
    back, _ = _partners(expected, actual)
    scores = expected['scores'].sum() + actual['scores'].sum()
    lost = expected['scores'][~matched].sum() + actual['scores'][~back].sum()
    return {'boxes without a partner': difference(scores - lost, scores) if scores else 0.} | {
        name: difference(actual[name][partner[matched]], right[matched]) for name, right in expected.items()
        if name != 'labels' and matched.any()}


def _partners(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return for each expected box whether it has a partner, and the partner's index."""
    near = box_iou(expected['boxes'], actual['boxes']) >= 0.9
    near &= expected['labels'][:, None] == actual['labels'][None]
    if not near.numel():
        return torch.zeros(len(near), dtype=torch.bool), torch.zeros(len(near), dtype=torch.long)
    # Suppression may leave several boxes of one object, each with a score of its own.
    gap = (expected['scores'][:, None] - actual['scores'][None]).abs()
    return near.any(dim=1), gap.where(near, torch.inf).argmin(dim=1)


def compare(run: Callable[[Tensor], dict[str, Tensor]], reference: Callable[[Tensor], dict[str, Tensor]],
          images: Sequence[Tensor], precision: str, report: Callable[[str], None]) -> bool:
    """Compare a file with PyTorch on each of ``images`` and report a line for each output.

    Args:
        run: the file; normalised images, float32 (B, C, H, W), to outputs by name.
        reference: PyTorch; the same.
        images: batches of every size that is to be tried.
        precision: precision of the file; it sets the tolerance.
        report: takes a line.

    Returns:
        Whether every difference is within the tolerance.

    Raises:
        UserError: the file's runtime fails on one of the images.
    """
    good, compared = True, False
    for image in images:
        expected, what = reference(image), f'{"x".join(map(str, image.shape[2:]))}, batch {len(image)}'
        detector = 'boxes' in expected
        tolerance = (DETECTOR_TOLERANCES if detector else TOLERANCES)[precision]
        if detector and not len(expected['boxes']):
            what += ', nothing detected'
        try:
            actual = run(image)
        except Exception as error:  # whatever a runtime raises
            raise UserError(f'The runtime of this file fails on an image ({what}): '
                            f'{cause(error)} Export another format.') from error
        compared |= not detector or len(expected['boxes']) > 0
        differences = compare_detections(actual, expected) if detector else {
            name: difference(actual[name], value) for name, value in expected.items()}
        for name, value in differences.items():
            report(f'  {what}, {name}: relative difference {value:.2e}, '
                   f'{"within" if value <= tolerance else "ABOVE"} the tolerance of {precision}, {tolerance:g}')
            good &= value <= tolerance
    if not compared:
        report('  Nothing is detected in these images, so boxes were not compared: run tools/test.py on the file.')
    return good
