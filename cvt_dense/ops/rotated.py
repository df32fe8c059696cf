"""Overlap and suppression of rotated boxes, with the signatures of ``mmcv._ext``.

A box is its centre, width, height and angle in radians (x, y, w, h, a); the angle turns the x axis to the y axis.
"""
import torch
from torch import Tensor

PAIRS = 2**16  # pairs of boxes that are compared at once
MARGIN = 1e-5  # a corner that lies outside of a box by this fraction of its sides counts as inside
EMPTY = 1e-14  # the overlap of a box with a smaller area is 0, as mmcv's is


@torch.no_grad()
def box_iou_rotated(boxes1: Tensor, boxes2: Tensor, ious: Tensor, mode_flag: int, aligned: bool) -> None:
    """Write the overlaps of rotated boxes into ``ious``.

    Where edges of two boxes lie on one line, compiled mmcv may miss the overlap by rounding; this function does not.

    Args:
        boxes1: (N, 5).
        boxes2: (M, 5).
        ious: (N * M, ), or (N, ) if ``aligned``.
        mode_flag: 0 divides the intersection by the union, 1 by the area of the box of ``boxes1``.
        aligned: whether each box is compared with the box of the same index only; then N = M.
    """
    ious.zero_()
    if boxes1.device.type == 'meta':
        return
    radii1, radii2 = boxes1[:, 2:4].norm(dim=1) / 2, boxes2[:, 2:4].norm(dim=1) / 2
    if aligned:
        near = (boxes1[:, :2] - boxes2[:, :2]).norm(dim=1) < radii1 + radii2
        first = second = index = near.nonzero()[:, 0]
    else:
        near = torch.cdist(boxes1[:, :2], boxes2[:, :2]) < radii1[:, None] + radii2
        first, second = near.nonzero().unbind(1)
        index = first * len(boxes2) + second
    for part in torch.arange(len(index), device=index.device).split(PAIRS):
        ious[index[part]] = _overlap(boxes1[first[part]], boxes2[second[part]], mode_flag).to(ious.dtype)


@torch.no_grad()
def nms_rotated(dets: Tensor, scores: Tensor, order: Tensor, dets_sorted: Tensor, labels: Tensor,
                iou_threshold: float, multi_label: bool) -> Tensor:
    """Return the indices of the boxes that greedy suppression keeps, by falling score, int64.

    Args:
        dets: (N, 5), or (N, 6) with the label in the last column, whose boxes suppress only those of their own label.
        scores: (N, ).
        order, dets_sorted, labels: not used, because they follow from the others.
        iou_threshold: a box is suppressed if its overlap with a kept box of a higher score is as large or larger.
        multi_label: whether ``dets`` has labels.
    """
    order = scores.sort(descending=True, stable=True).indices
    if dets.device.type == 'meta':
        return order
    boxes, kept = dets[order], []
    free = torch.ones(len(boxes), dtype=torch.bool, device=dets.device)
    while free.any():
        best = int(free.nonzero()[0])
        kept.append(best)
        free[best] = False
        rest = free.nonzero()[:, 0]
        if multi_label:
            rest = rest[boxes[rest, 5] == boxes[best, 5]]
        ious = boxes.new_zeros(len(rest))
        box_iou_rotated(boxes[best, None, :5], boxes[rest, :5], ious, mode_flag=0, aligned=False)
        free[rest[ious >= iou_threshold]] = False
    return order[kept]


def _overlap(a: Tensor, b: Tensor, mode_flag: int) -> Tensor:
    """Return the overlap (P, ) of each pair of boxes (P, 5)."""
    a, b = a.double(), b.double()
    shift = torch.cat((a[:, :2], torch.zeros_like(a[:, 2:])), dim=1)  # small coordinates lose fewer digits
    a, b = a - shift, b - shift
    corners_a, corners_b = _corners(a), _corners(b)
    edges_a, edges_b = corners_a.roll(-1, 1) - corners_a, corners_b.roll(-1, 1) - corners_b
    # The edges cross in corners_a + t * edges_a = corners_b + u * edges_b: (P, 4 edges of a, 4 edges of b).
    between = corners_b[:, None] - corners_a[:, :, None]
    turn = _cross(edges_a[:, :, None], edges_b[:, None])
    t, u = (_cross(between, edges) / turn for edges in (edges_b[:, None], edges_a[:, :, None]))
    crosses = (t >= 0) & (t <= 1) & (u >= 0) & (u <= 1)  # parallel edges give infinity or NaN, and do not cross
    crossings = corners_a[:, :, None] + t[..., None].where(crosses[..., None], 0) * edges_a[:, :, None]
    points = torch.cat((corners_a, corners_b, crossings.flatten(1, 2)), dim=1)  # (P, 24, 2)
    valid = torch.cat((_inside(corners_a, b), _inside(corners_b, a), crosses.flatten(1)), dim=1)
    # All valid points lie on the edge of the intersection, which is convex: sorted by their angle around their mean,
    # they are its outline. Each invalid point is replaced by a valid one, which adds no area.
    points = torch.where(valid[..., None], points, points.take_along_dim(valid.byte().argmax(1)[:, None, None], 1))
    rays = points - points.mean(1, keepdim=True)
    rays = rays.take_along_dim(torch.atan2(rays[..., 1], rays[..., 0]).argsort(1)[..., None], 1)
    common = _cross(rays, rays.roll(-1, 1)).sum(1).abs() / 2
    areas = [box[:, 2] * box[:, 3] for box in (a, b)]
    total = areas[0] if mode_flag else areas[0] + areas[1] - common
    return torch.where(valid.any(1) & (torch.minimum(*areas) >= EMPTY), common / total, 0)


def _corners(boxes: Tensor) -> Tensor:
    """Return the corners (P, 4, 2) of boxes in the order of their outline."""
    cos, sin = boxes[:, 4].cos(), boxes[:, 4].sin()
    x = torch.stack((cos, sin), dim=1) * boxes[:, 2:3] / 2
    y = torch.stack((-sin, cos), dim=1) * boxes[:, 3:4] / 2
    return boxes[:, None, :2] + torch.stack((-x - y, x - y, x + y, y - x), dim=1)


def _inside(points: Tensor, boxes: Tensor) -> Tensor:
    """Return whether points (P, K, 2) lie in a box (P, 5) each."""
    x, y = (points - boxes[:, None, :2]).unbind(2)
    cos, sin = boxes[:, 4:].cos(), boxes[:, 4:].sin()
    along, across = x * cos + y * sin, y * cos - x * sin
    return (along.abs() <= boxes[:, 2:3] * (0.5 + MARGIN)) & (across.abs() <= boxes[:, 3:4] * (0.5 + MARGIN))


def _cross(a: Tensor, b: Tensor) -> Tensor:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
