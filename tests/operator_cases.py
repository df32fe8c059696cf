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


def cases() -> Iterator[tuple[str, tuple, Callable[..., Case]]]:
    """Give the operator, the settings and the function of each case; a case returns outputs and gradients."""
    for kind, aligned, ratio, mode in product(BOXES, (True, False), (0, 1, 2, 3), (1, )):
        yield 'roi_align', (kind, aligned, ratio, mode), roi_align
    for number, offset in product((0, 1, 5, 40, 600), (0, 1)):
        yield 'nms', (number, offset), suppression


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
