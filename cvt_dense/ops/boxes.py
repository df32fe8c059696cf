"""Suppression of boxes, and features of boxes, with the signatures of ``mmcv._ext``."""
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.ops import box_iou

BLOCK = 256  # boxes that nms compares at once
ENTRIES = 2**22  # cells that roi_align reads at once


def _load_torchvision() -> bool:
    """Return whether torchvision's compiled operators load; its build may not fit PyTorch's."""
    try:
        from torchvision.ops import nms
        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, RuntimeError, NotImplementedError):
        return False
    return True


TORCHVISION = _load_torchvision()


# -- suppression -----------------------------------------------------------------------------------------


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes that greedy suppression keeps, by falling score, int64.

    Args:
        boxes: (N, 4), x1, y1, x2, y2.
        scores: (N, ).
        iou_threshold: a box is suppressed if its overlap with a kept box of a higher score is larger.
        offset: 1 if a box includes its last pixel, which is added to its sides; otherwise 0.
    """
    boxes, scores = boxes.detach(), scores.detach()
    if boxes.dtype != torch.float64:
        boxes = boxes.float()
    order = scores.sort(descending=True, stable=True).indices
    if boxes.device.type == 'meta':  # the number that is kept depends on values
        return order
    if TORCHVISION and offset == 0:
        from torchvision.ops import nms
        return nms(boxes, scores.to(boxes.dtype), iou_threshold)
    boxes = boxes[order]
    boxes[:, 2:] += offset
    kept = [order.new_empty(0)]
    for start in range(0, len(boxes), BLOCK):
        block = boxes[start:start + BLOCK]
        free = ~(box_iou(boxes[torch.cat(kept)], block) > iou_threshold).any(0)
        suppresses = (box_iou(block, block) > iou_threshold).triu(1)
        keep = free
        while True:  # each round settles at least one further box, most blocks need three or four rounds
            changed = free & ~(suppresses & keep[:, None]).any(0)
            if torch.equal(changed, keep):
                break
            keep = changed
        kept.append(start + keep.nonzero()[:, 0])
    return order[torch.cat(kept)]


# -- RoIAlign --------------------------------------------------------------------------------------------


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor,
                      aligned_height: int, aligned_width: int, spatial_scale: float, sampling_ratio: int,
                      pool_mode: int, aligned: bool) -> None:
    """Write RoIAlign (He et al. 2017, section 3) of K boxes into ``output``: the averages of the bins.

    Args:
        input: (N, C, H, W).
        rois: (K, 5), the index of the image and x1, y1, x2, y2 in pixels of the image.
        output: (K, C, aligned_height, aligned_width).
        argmax_y, argmax_x: not used, because they belong to maxima.
        spatial_scale: cells of the map per pixel of the image.
        sampling_ratio: samples along each side of a bin; 0: as many as a bin has cells.
        pool_mode: 1, the average of a bin's samples.
        aligned: whether a cell's centre is at half a pixel.

    Raises:
        NotImplementedError: ``pool_mode`` is 0, the maximum.
    """
    if pool_mode == 0:
        raise NotImplementedError("pool_mode='max' of RoIAlign needs mmcv with compiled operators.")
    if input.device.type != 'meta':
        output.copy_(_average(_exact(input), rois, aligned_height, aligned_width, spatial_scale, sampling_ratio,
                              aligned))


def roi_align_backward(grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor,
                       aligned_height: int, aligned_width: int, spatial_scale: float, sampling_ratio: int,
                       pool_mode: int, aligned: bool) -> None:
    """Add the gradient of :func:`roi_align_forward` by its input to ``grad_input``."""
    if grad_output.device.type == 'meta':
        return
    grad = _exact(grad_output)
    with torch.enable_grad():
        leaf = torch.zeros_like(grad_input, dtype=grad.dtype).requires_grad_()
        out = _average(leaf, rois, aligned_height, aligned_width, spatial_scale, sampling_ratio, aligned)
    grad_input += torch.autograd.grad(out, leaf, grad)[0]


def _exact(tensor: Tensor) -> Tensor:
    """Return a tensor in a precision that coordinates and sums need: float32 instead of half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _average(input: Tensor, rois: Tensor, rows: int, columns: int, scale: float, ratio: int, aligned: bool) -> Tensor:
    """Return the averages of bins: by torchvision on CUDA, on other devices as weighted sums of the cells' features.

    Bilinear interpolation and the average over a bin's samples are linear, and each is a product of a function of y and
    one of x. :func:`torch.nn.functional.embedding_bag` therefore reads each cell of a bin once, with all of its
    channels, on all threads.
    """
    if TORCHVISION and input.is_cuda:
        from torchvision.ops import roi_align
        return roi_align(input, rois.to(input.dtype), (rows, columns), scale, ratio, aligned)
    height, width = input.shape[2:]
    vectors = input.permute(0, 2, 3, 1).flatten(0, 2)
    corners = rois[:, 1:].to(input.dtype).nan_to_num(0., 0., 0.) * scale - (.5 if aligned else 0)
    start, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
    size = size if aligned else size.clamp(min=1)
    spans = (size / size.new_tensor([columns, rows])).ceil().clamp(min=0).long()  # cells that a bin may cover, x and y
    parts, places = [], []
    for span in spans.unique(dim=0):  # boxes of one span have index arrays of one shape
        x_span, y_span = span.tolist()
        entries = rows * columns * min(x_span + 2, width) * min(y_span + 2, height)
        for some in (spans == span).all(1).nonzero()[:, 0].split(max(1, ENTRIES // entries)):
            x, x_weight = _cells(start[some, 0], size[some, 0], columns, width, x_span, ratio)
            y, y_weight = _cells(start[some, 1], size[some, 1], rows, height, y_span, ratio)
            y = y + rois[some, 0].long()[:, None, None] * height
            index = y[:, :, None, :, None] * width + x[:, None, :, None, :]
            weight = y_weight[:, :, None, :, None] * x_weight[:, None, :, None, :]
            parts.append(F.embedding_bag(index.flatten(3).flatten(0, 2), vectors, mode='sum',
                                         per_sample_weights=weight.flatten(3).flatten(0, 2)))
            places.append(some)
    if not parts:
        return vectors.new_zeros(0, input.shape[1], rows, columns) + 0 * input.sum()
    order = torch.cat(places).argsort()
    bags = torch.cat(parts).view(len(rois), rows, columns, -1)
    return bags[order].permute(0, 3, 1, 2)


def _cells(start: Tensor, size: Tensor, bins: int, length: int, span: int, ratio: int) -> tuple[Tensor, Tensor]:
    """Return the cells that the samples of each bin touch along one axis, and their weights in the average.

    Args:
        start, size: (K, ), the boxes in cells.
        bins: number of bins along this axis.
        length: number of the map's cells.
        span: size of a bin, rounded up.
        ratio: see :func:`roi_align_forward`.

    Returns:
        Indices and weights (K, bins, cells).
    """
    number = ratio if ratio > 0 else max(span, 1)
    side = (size / bins)[:, None, None]  # mmcv's order of operations, which decides at the edge of a map
    inner = (torch.arange(number, device=start.device, dtype=start.dtype) + .5) * side / number
    sample = start[:, None, None] + torch.arange(bins, device=start.device)[:, None] * side + inner
    inside = (sample >= -1) & (sample <= length) & (span + ratio > 0)  # no samples of an empty box
    sample = sample.clamp(0, length - 1)
    cell = sample.amin(-1, keepdim=True).floor() + torch.arange(min(span + 2, length), device=start.device)
    weight = (1 - (sample[:, :, None] - cell[..., None]).abs()).clamp(min=0) * inside[:, :, None]
    return cell.clamp(max=length - 1).long(), weight.mean(-1)
