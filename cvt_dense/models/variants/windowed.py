"""Attention inside the windows of a map."""
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...registry import MODELS
from ..attention import ConvAttention, Shape

Band = tuple[int, int, int]  # windows along one side of the map: where they start, the size of each, their number


@MODELS.register_module()
class WindowedAttention(ConvAttention):
    """Attention whose cost grows linearly with the image's area instead of quadratically.

    A query of the map attends to the keys of its own window and to the CLS token; the CLS token attends to everything.
    The convolutions still run over the whole map, so neighbouring windows exchange information at their borders.
    Windows at the right and lower edge of a map that ``window_size`` does not divide are smaller. A map no larger than
    one window gets exactly global attention. No parameter depends on the windows, so the same weights load.

    Args:
        window_size: side of the windows in tokens of the map, a multiple of ``stride_kv``.
        kwargs: arguments of :class:`ConvAttention`.

    Raises:
        ValueError: ``window_size`` is no positive multiple of ``stride_kv``, or the keys lie on no grid that windows
            divide.
    """

    def __init__(self, window_size: int, **kwargs: Any):
        super().__init__(**kwargs)
        if not self.has_aligned_keys:
            raise ValueError("windows need a k/v map that is exactly stride_kv times smaller than q's: "
                             "qkv_proj_method='linear', or 'dw_bn' with padding_kv (kernel_qkv - 1) / 2.")
        if window_size < 1 or window_size % self.stride_kv:
            raise ValueError(f'window_size={window_size!r}: allowed are positive multiples of stride_kv='
                             f'{self.stride_kv}.')
        self.window_size = window_size

    def attend(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape | None) -> Tensor:
        if any(isinstance(side, torch.SymInt) for side in hw_shape):
            return self.attend_padded(q, k, v, hw_shape)
        if max(hw_shape) <= self.window_size:
            return super().attend(q, k, v, hw_shape)
        return window_attention(super().attend, q, k, v, hw_shape, self.window_size, self.stride_kv)

    def attend_padded(self, q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape) -> Tensor:
        """Compute the same as :func:`window_attention` by one graph for maps of any size, which an export needs.

        The map is padded to whole windows, and the padded keys get no weight.
        """
        window, window_kv = self.window_size, self.window_size // self.stride_kv
        # Exported files round the division of negative numbers, as in -(-side // stride), towards zero.
        hw_kv = tuple((side + self.stride_kv - 1) // self.stride_kv for side in hw_shape)
        rows, columns = ((side + window - 1) // window for side in hw_shape)
        num_cls = q.shape[1] - hw_shape[0] * hw_shape[1]

        def cut(x: Tensor, shape: Shape, side: int, value: float = 0.) -> Tensor:
            padding = (0, 0, 0, columns * side - shape[1], 0, rows * side - shape[0])
            return _split(F.pad(x.unflatten(1, shape), padding, value=value), (0, side, rows), (0, side, columns))

        def with_cls(x: Tensor) -> Tensor:
            windows = cut(x[:, num_cls:], hw_kv, window_kv)
            if not num_cls:
                return windows
            cls_token = x[:, None, :num_cls].expand(-1, rows * columns, -1, -1).flatten(0, 1)
            return torch.cat((cls_token, windows), dim=1)

        padded = cut(torch.zeros_like(k[:, num_cls:, :1]), hw_kv, window_kv, -torch.inf)
        # ONNX Runtime takes no bias with one row for all queries.
        bias = F.pad(padded.mT[:, None], (num_cls, 0)) + padded.new_zeros(window**2, 1)
        x = super().attend(cut(q[:, num_cls:], hw_shape, window), with_cls(k), with_cls(v), None, bias)
        x = x.unflatten(1, (window, window)).unflatten(0, (q.shape[0], rows, columns)).transpose(2, 3)
        x = x.flatten(3, 4).flatten(1, 2)[:, :hw_shape[0], :hw_shape[1]].flatten(1, 2)
        return torch.cat((super().attend(q[:, :num_cls], k, v, None), x), dim=1) if num_cls else x


def window_attention(attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, hw_shape: Shape, window: int,
                     stride: int) -> Tensor:
    """Compute attention in windows.

    Whole windows, the windows cut by the right edge, those cut by the lower edge and the corner are one batch each:
    nothing is padded, so nothing needs a mask, which would slow attention down.

    Args:
        attend: attention inside windows, called with q, k, v and a window's shape; with None as the shape for the CLS
            token, which attends to everything.
        q: T tokens (CLS) and those of a map, (B, T + H * W, C).
        k, v: (B, T + H' * W', C).
        hw_shape: (H, W).
        window: side of the windows in tokens of q's map.
        stride: stride of the convolutions that made k and v: H' is H over it, rounded up.

    Returns:
        The shape of ``q``.
    """
    h, w = hw_shape
    num_cls = q.shape[1] - h * w
    cls_q, cls_k, cls_v = q[:, :num_cls], k[:, :num_cls], v[:, :num_cls]
    hw_kv = tuple(-(-side // stride) for side in hw_shape)
    maps = [y[:, num_cls:].unflatten(1, hw) for y, hw in ((q, hw_shape), (k, hw_kv), (v, hw_kv))]

    def with_cls(windows: Tensor, cls_token: Tensor) -> Tensor:
        if not num_cls:
            return windows
        return torch.cat((cls_token.repeat_interleave(len(windows) // max(len(q), 1), dim=0), windows), dim=1)

    rows = []
    for rows_q, rows_kv in _bands(h, window, stride):
        row = []
        for columns_q, columns_kv in _bands(w, window, stride):
            windows = [_split(y, *bands) for y, bands in zip(
                maps, ((rows_q, columns_q), (rows_kv, columns_kv), (rows_kv, columns_kv)))]
            (_, height, count_y), (_, width, count_x) = rows_q, columns_q
            y = attend(windows[0], with_cls(windows[1], cls_k), with_cls(windows[2], cls_v), (height, width))
            y = y.view(len(q), count_y, count_x, height, width, q.shape[2])
            row.append(y.transpose(2, 3).reshape(len(q), count_y * height, count_x * width, q.shape[2]))
        rows.append(torch.cat(row, dim=2) if len(row) > 1 else row[0])
    x = (torch.cat(rows, dim=1) if len(rows) > 1 else rows[0]).flatten(1, 2)
    return torch.cat((attend(cls_q, k, v, None), x), dim=1) if num_cls else x


def _bands(length: int, window: int, stride: int) -> list[tuple[Band, Band]]:
    """Return the whole windows along one side of the map, then the cut one; for q, and for k and v."""
    count, rest = length // window, length % window  # torch.compile has no divmod of sizes that vary
    start = count * window
    bands = [((0, window, count), (0, window // stride, count))] if count else []
    if rest:
        bands.append(((start, rest, 1), (start // stride, -(-rest // stride), 1)))
    return bands


def _split(x: Tensor, rows: Band, columns: Band) -> Tensor:
    """Cut windows out of a map: (B, H, W, C) to (B * windows, tokens of a window, C)."""
    (top, height, count_y), (left, width, count_x) = rows, columns
    x = x[:, top:top + height * count_y, left:left + width * count_x]
    x = x.unflatten(2, (count_x, width)).unflatten(1, (count_y, height))
    return x.transpose(2, 3).flatten(0, 2).flatten(1, 2)
