"""Multi-scale deformable attention with the signatures of ``mmcv._ext``."""
import torch
from torch import Tensor


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
    """Write the gradients of :func:`ms_deform_attn_forward`, which autograd computes, into the last three tensors."""
    leaves = [tensor.detach().requires_grad_() for tensor in (value, locations, weights)]
    with torch.enable_grad():
        result = ms_deform_attn_forward(leaves[0], shapes, level_start, *leaves[1:], im2col_step)
    for output, gradient in zip((grad_value, grad_locations, grad_weights),
                                torch.autograd.grad(result, leaves, grad_output)):
        output.copy_(gradient)
