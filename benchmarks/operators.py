"""Compare the operators of cvt_dense.ops with those of compiled mmcv: ``python benchmarks/operators.py OUT.md``.

The environment needs compiled mmcv ("make setup OPS=compiled"). Both implementations get the same tensors, in turns,
and the table has the largest difference of their outputs and the median of their times. Compiled mmcv has neither
RoIPool, focal losses nor deformable attention for CPUs.
"""
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from mmcv import _ext
from torch import Tensor

from cvt_dense.ops import operator
from cvt_dense.ops.boxes import TORCHVISION

ROUNDS = 7
Call = Callable[[Callable[[str], Callable]], list[Tensor]]


def boxes(number: int) -> Tensor:
    """Return boxes (number, 4) on an image of 800 x 1344 pixels, most of which overlap others."""
    corner = torch.rand(number, 2) * torch.tensor([1200., 700.])
    return torch.cat((corner, corner + 8 + torch.rand(number, 2)**2 * 400), dim=1)


def calls() -> Iterator[tuple[str, str, Call]]:
    """Give the operator, the inputs in words, and a function that calls it and returns its outputs."""
    x, rois = torch.randn(1, 256, 200, 336), torch.cat((torch.zeros(1000, 1), boxes(1000)), dim=1)
    for mode, name in ((1, 'average'), (0, 'maximum')):
        settings = dict(aligned_height=7, aligned_width=7, spatial_scale=1 / 4, sampling_ratio=0 if mode else 2,
                        pool_mode=mode, aligned=True)
        out, y, column = torch.zeros(3, 1000, 256, 7, 7)

        def forward(get: Callable, settings: dict = settings, out: tuple = (out, y, column)) -> list[Tensor]:
            get('roi_align_forward')(x, rois, *out, **settings)
            return [out[0].clone()]

        def backward(get: Callable, settings: dict = settings, out: tuple = (out, y, column)) -> list[Tensor]:
            grad = torch.zeros_like(x)
            get('roi_align_backward')(torch.ones_like(out[0]), rois, *out[1:], grad, **settings)
            return [grad]

        yield f'`roi_align`, {name}', '1,000 boxes, 256 x 200 x 336', forward
        yield f'its gradient, {name}', 'the same', backward

    candidates, scores = boxes(2000), torch.rand(2000)
    yield '`nms`', '2,000 boxes', lambda get: [get('nms')(candidates, scores, iou_threshold=.7, offset=0)]

    def softnms(get: Callable) -> list[Tensor]:
        rows = torch.zeros(2000, 5)
        kept = get('softnms')(candidates.clone(), scores.clone(), rows, iou_threshold=.3, sigma=.5, min_score=.05,
                              method=1, offset=0)
        return [rows[:len(kept)]]

    yield '`softnms`', '2,000 boxes', softnms

    inputs, weight, bias = torch.randn(1, 256, 50, 84), torch.randn(256, 256, 3, 3) / 48, torch.randn(256)
    offset, mask, result = torch.randn(1, 18, 50, 84), torch.rand(1, 9, 50, 84), torch.zeros(1, 256, 50, 84)
    settings = dict(kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, pad_h=1, pad_w=1, dilation_h=1, dilation_w=1,
                    group=1, deformable_group=1, with_bias=True)

    def convolution(get: Callable) -> list[Tensor]:
        get('modulated_deform_conv_forward')(inputs, weight, bias, torch.empty(0), offset, mask, result, torch.empty(0),
                                             **settings)
        return [result.clone()]

    def gradients(get: Callable) -> list[Tensor]:
        grads = [torch.zeros_like(t) for t in (inputs, weight, bias, offset, mask)]
        get('modulated_deform_conv_backward')(inputs, weight, bias, torch.empty(0), offset, mask, torch.empty(0),
                                              *grads, torch.ones_like(result), **settings)
        return grads

    yield '`modulated_deform_conv`', '3 x 3, 256 x 50 x 84', convolution
    yield 'its gradients', 'the same', gradients


def milliseconds(call: Call, get: Callable) -> tuple[float, list[Tensor]]:
    start = time.perf_counter()
    outputs = call(get)
    return (time.perf_counter() - start) * 1000, outputs


def main() -> None:
    """Write the table as Markdown."""
    if not _ext.__file__.endswith(('.so', '.pyd')):
        sys.exit('This mmcv has no compiled operators: run "make setup OPS=compiled" first.')
    torch.manual_seed(0)
    by = 'torchvision' if TORCHVISION else 'PyTorch'
    rows = ['| operator | inputs | by | largest difference | mmcv, ms | cvt_dense.ops, ms | ratio |',
            '|---|---|---|---|---|---|---|']
    for name, inputs, call in calls():
        times = ([], [])
        for _ in range(ROUNDS):
            (ours, outputs), (theirs, expected) = (milliseconds(call, get) for get in (
                operator, lambda name: getattr(_ext, name)))
            times[0].append(ours)
            times[1].append(theirs)
        difference = max(float((a - b).abs().max() / b.abs().max().clamp(min=1)) if a.shape == b.shape else float('inf')
                         for a, b in zip(outputs, expected))
        ours, theirs = map(statistics.median, times)
        rows.append(f'| {name} | {inputs} | {by if name == "`nms`" else "PyTorch"} | {difference:.0e} | {theirs:.0f} | '
                    f'{ours:.0f} | {theirs / ours:.2f} |')
    Path(sys.argv[1]).write_text('\n'.join(rows) + '\n')
    print('\n'.join(rows))


if __name__ == '__main__':
    main()
