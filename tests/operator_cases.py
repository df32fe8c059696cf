"""Cases for mmcv's operators, and what compiled mmcv gave for them: python tests/operator_cases.py writes it again.

The cases come from NumPy's RandomState, whose numbers are the same in every release.
"""
import zlib
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

PATH = Path(__file__).parent / 'data' / 'mmcv_operators.npz'
BOXES = ('inside', 'outside', 'huge', 'empty', 'on_the_grid')
Operator = Callable[..., Tensor]
Case = Callable[[Callable[[str], Operator]], list[Tensor]]


def boxes(kind: str, number: int, random: np.random.RandomState) -> Tensor:
    """Return boxes (number, 4) on an image of 80 x 104 pixels."""
    x, y, w, h = random.rand(4, number) * [[104], [80], [60], [60]]
    if kind == 'outside':
        x, y = x * 3 - 104, y * 3 - 80
    elif kind == 'huge':
        w, h = w * 20, h * 20
    elif kind == 'empty':
        w, h = w * 0, h * (random.rand(number) > .5)
    corners = torch.tensor(np.stack((x, y, x + w, y + h), 1), dtype=torch.float32)
    return (corners / 8).round() * 8 if kind == 'on_the_grid' else corners


def roi_align(kind: str, aligned: bool, ratio: int, mode: int, random: np.random.RandomState) -> Case:
    def case(operator: Callable[[str], Operator]) -> list[Tensor]:
        images = torch.tensor(random.randint(0, 2, (16, 1)), dtype=torch.float32)
        rois = torch.cat((images, boxes(kind, 16, random)), dim=1)
        features = torch.tensor(random.randn(2, 2, 10, 13), dtype=torch.float32)
        grad = torch.tensor(random.randn(16, 2, 3, 3), dtype=torch.float32)
        out, y, x, grad_input = (torch.zeros_like(t) for t in (grad, grad, grad, features))
        settings = dict(aligned_height=3, aligned_width=3, spatial_scale=1 / 8, sampling_ratio=ratio, pool_mode=mode,
                        aligned=aligned)
        operator('roi_align_forward')(features, rois, out, y, x, **settings)
        operator('roi_align_backward')(grad, rois, y, x, grad_input, **settings)
        return [out, grad_input]
    return case


def suppression(number: int, offset: int, random: np.random.RandomState) -> Case:
    def case(operator: Callable[[str], Operator]) -> list[Tensor]:
        candidates, scores = boxes('inside', number, random), torch.tensor(random.rand(number), dtype=torch.float32)
        return [operator('nms')(candidates, scores, iou_threshold=random.uniform(.1, .9), offset=offset).short()]
    return case


def deformable(groups: int, deform_groups: int, stride: int, padding: int, dilation: int,
               random: np.random.RandomState) -> Case:
    def case(operator: Callable[[str], Operator]) -> list[Tensor]:
        def array(*shape: int) -> Tensor:
            return torch.tensor(random.randn(*shape), dtype=torch.float32)
        rows, columns = ((size + 2 * padding - 2 * dilation - 1) // stride + 1 for size in (7, 8))
        x, weight, bias = array(2, 4, 7, 8), array(4, 4 // groups, 3, 3), array(4)
        offset, mask = array(2, deform_groups * 18, rows, columns) * 2, array(2, deform_groups * 9, rows, columns)
        grad, empty, settings = array(2, 4, rows, columns), torch.empty(0), dict(group=groups,
                                                                               deformable_group=deform_groups)
        out, plain = torch.zeros_like(grad), torch.zeros_like(grad)
        grads = [torch.zeros_like(t) for t in (x, weight, bias, offset, mask)]
        new = dict(kernel_h=3, kernel_w=3, stride_h=stride, stride_w=stride, pad_h=padding, pad_w=padding,
                   dilation_h=dilation, dilation_w=dilation, with_bias=True, **settings)
        operator('modulated_deform_conv_forward')(x, weight, bias, empty, offset, mask, out, empty, **new)
        operator('modulated_deform_conv_backward')(x, weight, bias, empty, offset, mask, torch.empty(0), *grads, grad,
                                                   **new)
        old = dict(kW=3, kH=3, dW=stride, dH=stride, padW=padding, padH=padding, dilationW=dilation,
                   dilationH=dilation, im2col_step=2, **settings)
        operator('deform_conv_forward')(x, weight, offset, plain, torch.empty(0), torch.empty(0), **old)
        old_grads = [torch.zeros_like(t) for t in (x, offset, weight)]
        operator('deform_conv_backward_input')(x, offset, grad, *old_grads[:2], weight, torch.empty(0), **old)
        operator('deform_conv_backward_parameters')(x, offset, grad, old_grads[2], torch.empty(0), torch.empty(0),
                                                    scale=1, **old)
        return [out, *grads, plain, *old_grads]
    return case


def cases() -> Iterator[tuple[str, tuple, Callable[..., Case]]]:
    """Give the operator, the settings and the function of each case; a case returns outputs and gradients."""
    for kind, aligned, ratio, mode in product(BOXES, (True, False), (0, 1, 2, 3), (1, )):
        yield 'roi_align', (kind, aligned, ratio, mode), roi_align
    for number, offset in product((0, 1, 5, 40, 600), (0, 1)):
        yield 'nms', (number, offset), suppression
    for groups, stride in product(((1, 1), (2, 2), (1, 4)), ((1, 1, 1), (2, 1, 1), (1, 2, 2))):
        yield 'deform_conv', (*groups, *stride), deformable


def named_cases() -> dict[str, Case]:
    """Return the cases by name, each with random numbers of its own."""
    result = {}
    for operator, settings, make in cases():
        name = '-'.join(map(str, (operator, *settings)))
        result[name] = make(*settings, np.random.RandomState(zlib.crc32(name.encode())))
    return result


if __name__ == '__main__':
    from mmcv import _ext
    assert _ext.__file__.endswith(('.so', '.pyd')), 'The reference needs compiled mmcv: "make setup OPS=compiled".'
    outputs = {f'{name}/{i}': tensor.numpy() for name, case in named_cases().items()
               for i, tensor in enumerate(case(lambda name: getattr(_ext, name)))}
    np.savez_compressed(PATH, **outputs)
    print(f'{PATH}: {PATH.stat().st_size / 1000:.0f} kB')
