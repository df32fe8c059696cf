"""Deformable convolution and attention with the signatures of ``mmcv._ext``."""
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# -- attention -------------------------------------------------------------------------------------------


def ms_deform_attn_forward(value: Tensor, shapes: Tensor, level_start: Tensor, locations: Tensor, weights: Tensor,
                           im2col_step: int) -> Tensor:
    """Return multi-scale deformable attention (Zhu et al. 2021, equation 3).

    Args:
        value: (N, cells of all levels, heads, C).
        shapes: (levels, 2), height and width of each level.
        level_start: not used: the levels follow one another.
        locations: (N, queries, heads, levels, points, 2), x and y from 0 to 1.
        weights: (N, queries, heads, levels, points).
        im2col_step: not used.

    Returns:
        (N, queries, heads * C).
    """
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch  # its own formula; it imports this
    return multi_scale_deformable_attn_pytorch(value, shapes, locations, weights)


def ms_deform_attn_backward(value: Tensor, shapes: Tensor, level_start: Tensor, locations: Tensor, weights: Tensor,
                            grad_output: Tensor, grad_value: Tensor, grad_locations: Tensor, grad_weights: Tensor,
                            im2col_step: int) -> None:
    """Write the gradients of :func:`ms_deform_attn_forward` into the last three tensors."""
    _add_gradients(lambda v, x, w: ms_deform_attn_forward(v, shapes, level_start, x, w, im2col_step),
                  (value, locations, weights), grad_output, (grad_value, grad_locations, grad_weights))


# -- convolution -----------------------------------------------------------------------------------------


def deform_conv2d(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, stride: Sequence[int],
                  padding: Sequence[int], dilation: Sequence[int], groups: int, deform_groups: int) -> Tensor:
    """Return a deformable convolution (Dai et al. 2017), modulated (Zhu et al. 2019) where there is a ``mask``.

    Args:
        input: (N, C, H, W).
        weight: (out channels, C / groups, kernel height, kernel width).
        offset: (N, 2 * deform_groups * kernel cells, H', W'), y and x of each kernel cell in turn.
        mask: (N, deform_groups * kernel cells, H', W'), or None.
        stride, padding, dilation: of rows and columns.
    """
    batch, channels, height, width = input.shape
    kernel, cells = weight.shape[2:], weight.shape[2:].numel()
    rows, columns = ((size + 2 * pad - step * (cell - 1) - 1) // jump + 1 for size, pad, step, cell, jump in zip(
        input.shape[2:], padding, dilation, kernel, stride))

    def axis(dim: int, number: int) -> tuple[Tensor, Tensor]:
        steps = torch.arange(number, device=input.device) * stride[dim] - padding[dim]
        return steps, torch.arange(kernel[dim], device=input.device) * dilation[dim]

    def first(tensor: Tensor, *shape: int) -> Tensor:
        """Return the first numbers of offsets of a larger map, as mmcv does. mmdet's DyHead passes such offsets."""
        return tensor.flatten(1)[:, :deform_groups * math.prod(shape)].reshape(batch * deform_groups, *shape)

    (y, y_cell), (x, x_cell) = axis(0, rows), axis(1, columns)
    y_cell, x_cell = y_cell.repeat_interleave(kernel[1]), x_cell.repeat(kernel[0])
    shift = first(offset, cells, 2, rows, columns)
    y = shift[:, :, 0] + (y[:, None] + y_cell[:, None, None])
    x = shift[:, :, 1] + (x + x_cell[:, None, None])
    grid = torch.stack(((2 * x + 1) / width - 1, (2 * y + 1) / height - 1), dim=-1)
    maps = input.reshape(batch * deform_groups, channels // deform_groups, height, width)
    taken = F.grid_sample(maps, grid.flatten(1, 2), padding_mode='zeros', align_corners=False)
    taken = taken.unflatten(2, (cells, rows))  # (N * deform_groups, C / deform_groups, cells, rows, columns)
    if mask is not None:
        taken = taken * first(mask, cells, rows, columns)[:, None]
    taken = taken.reshape(batch, groups, -1, rows * columns)
    return (weight.reshape(groups, weight.shape[0] // groups, -1) @ taken).view(batch, -1, rows, columns)


def deform_conv_forward(input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor,
                        **settings: int) -> None:
    """Write :func:`deform_conv2d` without a mask into ``output``."""
    output.copy_(_convolution(settings)(input, weight, offset, None))


def deform_conv_backward_input(input: Tensor, offset: Tensor, grad_output: Tensor, grad_input: Tensor,
                               grad_offset: Tensor, weight: Tensor, columns: Tensor, **settings: int) -> None:
    """Add the gradients by input and offset of :func:`deform_conv_forward` to the given tensors."""
    _add_gradients(lambda x, o: _convolution(settings)(x, weight, o, None), (input, offset), grad_output,
                  (grad_input, grad_offset))


def deform_conv_backward_parameters(input: Tensor, offset: Tensor, grad_output: Tensor, grad_weight: Tensor,
                                    columns: Tensor, ones: Tensor, scale: float, **settings: int) -> None:
    """Add ``scale`` times the gradient by the weight of :func:`deform_conv_forward` to ``grad_weight``."""
    _add_gradients(lambda w: _convolution(settings)(input, w, offset, None), (torch.zeros_like(grad_weight), ),
                  grad_output * scale, (grad_weight, ))


def modulated_deform_conv_forward(input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor,
                                  mask: Tensor, output: Tensor, columns: Tensor, with_bias: bool,
                                  **settings: int) -> None:
    """Write :func:`deform_conv2d` with a mask and a bias into ``output``."""
    out = _convolution(settings)(input, weight, offset, mask)
    output.copy_(out + bias[:, None, None] if with_bias else out)


def modulated_deform_conv_backward(input: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor,
                                   mask: Tensor, columns: Tensor, grad_input: Tensor, grad_weight: Tensor,
                                   grad_bias: Tensor, grad_offset: Tensor, grad_mask: Tensor, grad_output: Tensor,
                                   with_bias: bool, **settings: int) -> None:
    """Add the gradients of :func:`modulated_deform_conv_forward` to the given tensors."""
    _add_gradients(_convolution(settings), (input, weight, offset, mask), grad_output,
                  (grad_input, grad_weight, grad_offset, grad_mask))
    if with_bias:
        grad_bias += grad_output.sum((0, 2, 3))


def _convolution(settings: dict[str, int]) -> Callable[..., Tensor]:
    """Return :func:`deform_conv2d` with the settings that mmcv gives under two sets of names."""
    def pair(old: str, new: str) -> list[int]:
        return [settings.get(f'{old}{a.upper()}', settings.get(f'{new}_{a}')) for a in 'hw']

    stride, padding, dilation = pair('d', 'stride'), pair('pad', 'pad'), pair('dilation', 'dilation')

    def function(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None) -> Tensor:
        # PyTorch samples in these precisions with less accuracy than it multiplies
        if input.device.type == 'cpu' and input.dtype in (torch.float16, torch.bfloat16):
            input, weight, offset, mask = (None if t is None else t.float() for t in (input, weight, offset, mask))
        return deform_conv2d(input, weight, offset, mask, stride, padding, dilation, settings['group'],
                             settings['deformable_group'])

    return function


def _add_gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], grad_output: Tensor,
                  outputs: Sequence[Tensor]) -> None:
    """Add the gradients of a function by its inputs to ``outputs``; autograd computes them."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        result = function(*leaves)
    for output, gradient in zip(outputs, torch.autograd.grad(result, leaves, grad_output.to(result.dtype))):
        output += gradient
