"""Two operators that exported detectors need, and ONNX has, but PyTorch has not: NonMaxSuppression and RoIAlign.

A .pt2 file with them runs where this module has been imported, which :func:`.runtime.open_exported` does.
"""
from typing import Any

import torch
from torch import Tensor

from ..ops import boxes as kernels


@torch.library.custom_op('cvt_dense::nms', mutates_args=())
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, max_boxes: int) -> Tensor:
    """Return the indices of at most ``max_boxes`` boxes (N, 4) that remain, by falling score.

    A box goes if its score is not above ``score_threshold``, or if it overlaps with a better one by more than
    ``iou_threshold``.
    """
    valid = (scores > score_threshold).nonzero()[:, 0]
    return valid[kernels.nms(boxes[valid], scores[valid], iou_threshold, 0)][:max_boxes]


@nms.register_fake
def _(boxes: Tensor, scores: Tensor, iou_threshold: float, score_threshold: float, max_boxes: int) -> Tensor:
    return scores.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.long)


@torch.library.custom_op('cvt_dense::roi_align', mutates_args=())
def roi_align(maps: Tensor, boxes: Tensor, height: int, width: int, scale: float, sampling_ratio: int,
              aligned: bool) -> Tensor:
    """Return averages (N, C, height, width) in the bins of boxes (N, 4) on the maps (1, C, H, W) of one image."""
    rois = torch.nn.functional.pad(boxes, (1, 0))
    output = maps.new_empty(len(boxes), maps.shape[1], height, width)
    kernels.roi_align_forward(maps, rois, output, output, output, height, width, scale, sampling_ratio, 1, aligned)
    return output


@roi_align.register_fake
def _(maps: Tensor, boxes: Tensor, height: int, width: int, scale: float, sampling_ratio: int,
      aligned: bool) -> Tensor:
    return maps.new_empty(boxes.shape[0], maps.shape[1], height, width)


def translations(opset: int) -> dict[Any, Any]:
    """Return the two operators in ONNX, for ``torch.onnx.export``."""
    import onnxscript
    op = getattr(onnxscript, f'opset{opset}')

    def onnx_nms(boxes, scores, iou_threshold: float, score_threshold: float, max_boxes: int):
        first, second = op.Constant(value_ints=[0]), op.Constant(value_ints=[1])
        chosen = op.NonMaxSuppression(
            op.Unsqueeze(boxes, first), op.Unsqueeze(scores, op.Constant(value_ints=[0, 1])),
            op.Constant(value_ints=[max_boxes]), op.Constant(value_floats=[iou_threshold]),
            op.Constant(value_floats=[score_threshold]))  # (chosen, 3): image, class, box; by falling score
        return op.Squeeze(op.Slice(chosen, op.Constant(value_ints=[2]), op.Constant(value_ints=[3]), second), second)

    def onnx_roi_align(maps, boxes, height: int, width: int, scale: float, sampling_ratio: int, aligned: bool):
        count = op.Slice(op.Shape(boxes), op.Constant(value_ints=[0]), op.Constant(value_ints=[1]))
        first = op.Expand(op.Constant(value_ints=[0]), count)  # the one image
        mode = 'half_pixel' if aligned else 'output_half_pixel'
        return op.RoiAlign(maps, boxes, first, coordinate_transformation_mode=mode, mode='avg', output_height=height,
                           output_width=width, sampling_ratio=sampling_ratio, spatial_scale=scale)

    return {torch.ops.cvt_dense.nms.default: onnx_nms, torch.ops.cvt_dense.roi_align.default: onnx_roi_align}
