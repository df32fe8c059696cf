"""Attention inside the windows of a map; what windows are is said at :class:`ConvAttention`."""
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[..., Tensor]
Band = tuple[int, int, int]  # of windows along one side of the map: where they start, the size of each, their number


def attend(q: Tensor, k: Tensor, v: Tensor, num_heads: int, scale: float, dropout: float = 0.) -> Tensor:
    """(B, Nq, C), (B, Nk, C), (B, Nk, C) to (B, Nq, C)."""
    q, k, v = (y.unflatten(2, (num_heads, -1)).transpose(1, 2) for y in (q, k, v))
    x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale)
    return x.transpose(1, 2).flatten(2)


def attend_in_windows(attend: Attend, q: Tensor, k: Tensor, v: Tensor, hw_shape: tuple[int, int], window: int,
                      stride: int) -> Tensor:
    """Same shapes as :func:`attend`.

    Whole windows, the windows cut by the right edge, those cut by the lower edge and the corner
    are a batch each: nothing is padded, so nothing needs a mask, which would slow attention down.

    Args:
        attend: attention inside windows, called with q, k, v and a window's shape; of the CLS token over everything
            without a shape.
        q, k, v: tokens of a map, (B, [1 +] H * W, C) and for k and v (B, [1 +] H' * W', C).
        hw_shape: (H, W).
        window: side of the windows in tokens of q's map.
        stride: of the convolutions that made k and v: H' is H over it, rounded up.
    """
    h, w = hw_shape
    num_cls = q.shape[1] - h * w
    cls_q, cls_k, cls_v = q[:, :num_cls], k[:, :num_cls], v[:, :num_cls]
    hw_kv = tuple(-(-side // stride) for side in hw_shape)
    maps = [y[:, num_cls:].unflatten(1, hw) for y, hw in ((q, hw_shape), (k, hw_kv), (v, hw_kv))]

    def with_cls(windows: Tensor, cls_token: Tensor) -> Tensor:
        if not num_cls:
            return windows
        return torch.cat((cls_token.repeat_interleave(len(windows) // len(q), dim=0), windows), dim=1)

    rows = []
    for rows_q, rows_kv in _bands(h, window, stride):
        row = []
        for columns_q, columns_kv in _bands(w, window, stride):
            windows = [_split(y, *bands) for y, bands in zip(
                maps, ((rows_q, columns_q), (rows_kv, columns_kv), (rows_kv, columns_kv)))]
            (_, height, count_y), (_, width, count_x) = rows_q, columns_q
            y = attend(windows[0], with_cls(windows[1], cls_k), with_cls(windows[2], cls_v), (height, width))
            y = y.view(len(q), count_y, count_x, height, width, -1)
            row.append(y.transpose(2, 3).reshape(len(q), count_y * height, count_x * width, -1))
        rows.append(torch.cat(row, dim=2) if len(row) > 1 else row[0])
    x = (torch.cat(rows, dim=1) if len(rows) > 1 else rows[0]).flatten(1, 2)
    return torch.cat((attend(cls_q, k, v), x), dim=1) if num_cls else x


def _bands(length: int, window: int, stride: int) -> list[tuple[Band, Band]]:
    """Whole windows along one side of the map, then the cut one; for q, and for k and v."""
    count, rest = length // window, length % window  # torch.compile has no divmod of sizes that vary
    start = count * window
    bands = [((0, window, count), (0, window // stride, count))] if count else []
    if rest:
        bands.append(((start, rest, 1), (start // stride, -(-rest // stride), 1)))
    return bands


def _split(x: Tensor, rows: Band, columns: Band) -> Tensor:
    """Windows of a map: (B, H, W, C) to (B * windows, tokens of a window, C)."""
    (top, height, count_y), (left, width, count_x) = rows, columns
    x = x[:, top:top + height * count_y, left:left + width * count_x]
    x = x.unflatten(2, (count_x, width)).unflatten(1, (count_y, height))
    return x.transpose(2, 3).flatten(0, 2).flatten(1, 2)


@torch.library.custom_op('cvt_dense::attend_in_windows', mutates_args=())
def opaque_attend_in_windows(q: Tensor, k: Tensor, v: Tensor, height: int, width: int, window: int, stride: int,
                             num_heads: int, scale: float) -> Tensor:
    """Attention in windows, for inference, that torch.compile does not look into.

    It would compile again for each way in which windows divide a map: with and without cut ones below and at the
    right, and for maps no larger than a window.
    """

    def within(q: Tensor, k: Tensor, v: Tensor, hw_shape: tuple[int, int] | None = None) -> Tensor:
        return attend(q, k, v, num_heads, scale)

    if max(height, width) <= window:
        return within(q, k, v).contiguous()
    return attend_in_windows(within, q, k, v, (height, width), window, stride)


@opaque_attend_in_windows.register_fake
def _(q: Tensor, *others: Tensor | int | float) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)
