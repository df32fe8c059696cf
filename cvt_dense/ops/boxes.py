"""Suppression of boxes, and features of boxes, with the signatures of ``mmcv._ext``."""
import math

import torch
import torch.nn.functional as F
from torch import Tensor

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
        offset: 1 if a box includes its last pixel, which is added to its sides; or else 0.
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
    kept = [order.new_empty(0)]
    for start in range(0, len(boxes), BLOCK):
        block = boxes[start:start + BLOCK]
        free = ~(overlap(boxes[torch.cat(kept)], block, offset) > iou_threshold).any(0)
        suppresses = (overlap(block, block, offset) > iou_threshold).triu(1)
        keep = free
        while True:  # each round settles at least one further box, most blocks need three or four rounds
            changed = free & ~(suppresses & keep[:, None]).any(0)
            if torch.equal(changed, keep):
                break
            keep = changed
        kept.append(start + keep.nonzero()[:, 0])
    return order[torch.cat(kept)]


def softnms(boxes: Tensor, scores: Tensor, dets: Tensor, iou_threshold: float, sigma: float, min_score: float,
            method: int, offset: int) -> Tensor:
    """Lower the scores of overlapping boxes (Bodla et al. 2017) and return the indices of those that stay.

    Args:
        boxes: (N, 4), on the CPU.
        scores: (N, ).
        dets: (N, 5); the boxes that stay and their new scores are written to its first rows.
        iou_threshold: overlap from which on methods 0 and 1 apply.
        sigma: width of the Gaussian of method 2.
        min_score: boxes whose score falls below are dropped.
        method: 0 drops overlapping boxes, 1 lowers linearly, 2 by a Gaussian.
        offset: see :func:`nms`.
    """
    rest, scores = torch.arange(len(boxes)), scores.detach().clone()
    boxes, chosen = boxes.detach(), []
    while len(rest):
        best = scores[rest].argmax()
        index = rest[best]
        dets[len(chosen)] = torch.cat((boxes[index], scores[index, None]))
        chosen.append(int(index))
        rest = torch.cat((rest[:best], rest[best + 1:]))
        iou = overlap(boxes[index, None], boxes[rest], offset)[0]
        if method == 2:
            factor = torch.exp(-iou**2 / sigma)
        else:
            factor = torch.where(iou >= iou_threshold, 1 - iou if method == 1 else 0., 1.)
        scores[rest] *= factor
        rest = rest[scores[rest] >= min_score]
    return torch.tensor(chosen, dtype=torch.long)


def overlap(a: Tensor, b: Tensor, offset: int) -> Tensor:
    """Return the intersection over union of boxes (N, 4) and (M, 4): (N, M)."""
    size = (torch.minimum(a[:, None, 2:], b[:, 2:]) - torch.maximum(a[:, None, :2], b[:, :2]) + offset).clamp(min=0)
    inside = size[..., 0] * size[..., 1]
    areas = [(x[:, 2] - x[:, 0] + offset) * (x[:, 3] - x[:, 1] + offset) for x in (a, b)]
    return inside / (areas[0][:, None] + areas[1] - inside)


# -- RoIAlign --------------------------------------------------------------------------------------------


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor,
                      aligned_height: int, aligned_width: int, spatial_scale: float, sampling_ratio: int,
                      pool_mode: int, aligned: bool) -> None:
    """Write RoIAlign (He et al. 2017, section 3) of K boxes into ``output``.

    Args:
        input: (N, C, H, W).
        rois: (K, 5), the index of the image and x1, y1, x2, y2 in pixels of the image.
        output: (K, C, aligned_height, aligned_width).
        argmax_y, argmax_x: like ``output``; where a maximum was taken from is written there, for the backward pass.
        spatial_scale: cells of the map per pixel of the image.
        sampling_ratio: samples along each side of a bin; 0: as many as a bin has cells.
        pool_mode: 0 takes the maximum of a bin's samples, 1 their average.
        aligned: whether a cell's centre is at half a pixel.
    """
    if input.device.type == 'meta':
        return
    settings = aligned_height, aligned_width, spatial_scale, sampling_ratio, aligned
    if pool_mode == 0:
        _write_maxima(_exact(input), rois, output, argmax_y, argmax_x, *settings)
    else:
        output.copy_(_average(_exact(input), rois, *settings))


def roi_align_backward(grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor,
                       aligned_height: int, aligned_width: int, spatial_scale: float, sampling_ratio: int,
                       pool_mode: int, aligned: bool) -> None:
    """Add the gradient of :func:`roi_align_forward` by its input to ``grad_input``."""
    if grad_output.device.type == 'meta':
        return
    grad = _exact(grad_output)
    if pool_mode == 0:
        _add_maxima_gradient(grad, rois, argmax_y.to(grad.dtype), argmax_x.to(grad.dtype), grad_input)
        return
    with torch.enable_grad():
        leaf = torch.zeros_like(grad_input, dtype=grad.dtype).requires_grad_()
        out = _average(leaf, rois, aligned_height, aligned_width, spatial_scale, sampling_ratio, aligned)
    grad_input += torch.autograd.grad(out, leaf, grad)[0]


def _exact(tensor: Tensor) -> Tensor:
    """Return a tensor in a precision that coordinates and sums need: float32 instead of half precision."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _average(input: Tensor, rois: Tensor, rows: int, columns: int, scale: float, ratio: int, aligned: bool) -> Tensor:
    """Return the averages of bins: by torchvision on CUDA, or else as weighted sums of the feature vectors of cells.

    Bilinear interpolation and the average over a bin's samples are linear, and each is a product of a function of y and
    one of x. :func:`torch.nn.functional.embedding_bag` therefore reads each cell of a bin once, with all of its
    channels, on all threads.
    """
    if TORCHVISION and input.is_cuda:
        from torchvision.ops import roi_align
        return roi_align(input, rois.to(input.dtype), (rows, columns), scale, ratio, aligned)
    height, width = input.shape[2:]
    vectors = input.permute(0, 2, 3, 1).flatten(0, 2)
    start, size, spans = _geometry(rois.to(input.dtype), rows, columns, scale, aligned)
    parts, places = [], []
    for span in spans.unique(dim=0):  # boxes of one span have index arrays of one shape
        x_span, y_span = span.tolist()
        entries = rows * columns * (x_span + 2) * (y_span + 2)
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


def _geometry(rois: Tensor, rows: int, columns: int, scale: float, aligned: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the upper left corners of boxes, their sizes, and the cells that a bin may cover: each (K, 2), x and y."""
    corners = rois[:, 1:] * scale - (.5 if aligned else 0)
    start, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
    if not aligned:
        size = size.clamp(min=1)
    return start, size, (size / size.new_tensor([columns, rows])).ceil().clamp(min=0).long()


def _samples(start: Tensor, size: Tensor, bins: int, number: int) -> Tensor:
    """Return the coordinates (K, bins, number) of the samples in each bin of boxes along one axis."""
    side = (size / bins)[:, None, None]  # mmcv's order of operations, which decides at the edge of a map
    inner = (torch.arange(number, device=start.device, dtype=start.dtype) + .5) * side / number
    return start[:, None, None] + torch.arange(bins, device=start.device)[:, None] * side + inner


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
    sample = _samples(start, size, bins, ratio if ratio > 0 else max(span, 1))
    inside = (sample >= -1) & (sample <= length) & (span + ratio > 0)  # no samples of an empty box
    sample = sample.clamp(0, length - 1)
    cell = sample.amin(-1, keepdim=True).floor() + torch.arange(span + 2, device=start.device)
    weight = (1 - (sample[:, :, None] - cell[..., None]).abs()).clamp(min=0) * inside[:, :, None]
    return cell.clamp(max=length - 1).long(), weight.mean(-1)


def _write_maxima(input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, rows: int,
                  columns: int, scale: float, ratio: int, aligned: bool) -> None:
    """Write the maxima of bins and their coordinates."""
    channels = input.shape[1]
    start, size, spans = _geometry(rois.to(input.dtype), rows, columns, scale, aligned)
    output.fill_(-10000.)  # mmcv's value of a box without samples
    argmax_y.fill_(-1.)
    argmax_x.fill_(-1.)
    for span in spans.unique(dim=0):
        x_number, y_number = [ratio if ratio > 0 else number for number in span.tolist()]
        entries = rows * columns * x_number * y_number * channels
        boxes = (spans == span).all(1).nonzero()[:, 0]
        for some in boxes.split(max(1, ENTRIES // entries)) if entries else ():
            x = _samples(start[some, 0], size[some, 0], columns, x_number)[:, None, :, None, :]
            y = _samples(start[some, 1], size[some, 1], rows, y_number)[:, :, None, :, None]
            x, y = (t.expand(-1, rows, columns, y_number, x_number).flatten(3) for t in (x, y))
            values = 0
            for index, weight in _corners(y, x, input.shape[2], input.shape[3]):
                image = rois[some, 0].long().view(-1, 1, 1, 1) * math.prod(input.shape[2:])
                vectors = F.embedding(index + image, input.permute(0, 2, 3, 1).flatten(0, 2))  # refuses image -1
                values = values + weight[..., None] * vectors  # (k, rows, columns, samples, C)
            best = values.max(3)
            output[some] = best.values.permute(0, 3, 1, 2).to(output.dtype)
            for argmax, coordinate in ((argmax_y, y), (argmax_x, x)):
                taken = coordinate.gather(3, best.indices)  # (k, rows, columns, C)
                argmax[some] = taken.permute(0, 3, 1, 2).to(argmax.dtype)


def _corners(y: Tensor, x: Tensor, height: int, width: int) -> list[tuple[Tensor, Tensor]]:
    """Return the four cells around points, as indices into H * W, and their weights in bilinear interpolation."""
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    low_y, low_x = y.floor(), x.floor()
    corners = []
    for y_cell in (low_y, low_y + 1):
        for x_cell in (low_x, low_x + 1):
            weight = (1 - (y - y_cell).abs()) * (1 - (x - x_cell).abs()) * inside
            corners.append(((y_cell.clamp(max=height - 1) * width + x_cell.clamp(max=width - 1)).long(), weight))
    return corners


def _add_maxima_gradient(grad: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor, grad_input: Tensor) -> None:
    """Give the gradient of each maximum to the four cells that it was interpolated from."""
    channels, height, width = grad_input.shape[1:]
    plane = rois[:, 0].long()[:, None] * channels + torch.arange(channels, device=grad.device)  # (K, C)
    taken = (argmax_y != -1) | (argmax_x != -1)
    total = torch.zeros(grad_input.numel(), dtype=grad.dtype, device=grad.device)
    for index, weight in _corners(argmax_y, argmax_x, height, width):
        index = index + plane[..., None, None] * height * width
        total.index_add_(0, index.flatten(), (grad * weight * taken).flatten())
    grad_input += total.view_as(grad_input)


# -- RoIPool ---------------------------------------------------------------------------------------------


def roi_pool_forward(input: Tensor, rois: Tensor, output: Tensor, argmax: Tensor, pooled_height: int,
                     pooled_width: int, spatial_scale: float) -> None:
    """Write the maxima of each box's bins of whole cells (Girshick 2015, section 2.1) into ``output``.

    Args:
        input: (N, C, H, W).
        rois: (K, 5), see :func:`roi_align_forward`.
        output: (K, C, pooled_height, pooled_width).
        argmax: like ``output``, int32: the cells of the maxima, or -1, are written there.
    """
    if input.device.type == 'meta':
        return
    (height, width), images = input.shape[2:], dict(enumerate(input))  # without a number -1
    argmax.fill_(-1)
    for number, (image, *corners) in enumerate(rois.float().tolist()):
        x1, y1, x2, y2 = (value * spatial_scale for value in (*corners[:2], corners[2] + 1, corners[3] + 1))
        if x2 <= x1 or y2 <= y1:
            continue
        cells = torch.arange(height * width, device=input.device).view(height, width)
        for row in range(pooled_height):
            rows = _bin(row, y1, (y2 - y1) / pooled_height, height)
            for column in range(pooled_width):
                columns = _bin(column, x1, (x2 - x1) / pooled_width, width)
                part = images[int(image)][:, rows, columns].flatten(1)
                if part.numel():
                    best = part.max(1)
                    output[number, :, row, column] = best.values
                    argmax[number, :, row, column] = cells[rows, columns].flatten()[best.indices].int()


def _bin(number: int, start: float, size: float, length: int) -> slice:
    low, high = math.floor(number * size + start), math.ceil((number + 1) * size + start)
    return slice(min(max(low, 0), length), min(max(high, 0), length))


def roi_pool_backward(grad_output: Tensor, rois: Tensor, argmax: Tensor, grad_input: Tensor, pooled_height: int,
                      pooled_width: int, spatial_scale: float) -> None:
    """Add the gradient of :func:`roi_pool_forward` by its input to ``grad_input``."""
    if grad_output.device.type == 'meta':
        return
    channels, height, width = grad_input.shape[1:]
    plane = rois[:, 0].long()[:, None] * channels + torch.arange(channels, device=rois.device)
    index = argmax.long().clamp(min=0) + plane[..., None, None] * height * width
    total = torch.zeros_like(grad_input).flatten()
    total.index_add_(0, index.flatten(), (grad_output * (argmax >= 0)).flatten())
    grad_input += total.view_as(grad_input)
