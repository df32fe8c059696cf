"""RoIAlign for inference on CPUs, as sums of weighted feature vectors."""
import torch
import torch.nn.functional as F
from mmcv.ops import RoIAlign
from torch import Tensor


class InferenceRoIAlign(RoIAlign):
    """RoIAlign (He et al. 2017, section 3) with averages that :func:`torch.nn.functional.embedding_bag` computes.

    Bilinear interpolation and the average over the samples of a bin are linear, and each is a product of a function of
    y and one of x. A bin is therefore a weighted sum of the feature vectors of a few neighbouring cells. On a CPU,
    mmcv's operator adds up four cells for each sample, channel after channel, on one thread. This class reads each cell
    once, with all of its channels, on all threads. Results differ by the rounding of coordinates. With gradients,
    in half precision, on other devices and while compiling, tracing or exporting it is mmcv's operator.

    Args:
        layer: the layer whose settings are taken. Its ``pool_mode`` must be ``'avg'``.
    """

    def __init__(self, layer: RoIAlign):
        super().__init__(layer.output_size, layer.spatial_scale, layer.sampling_ratio, layer.pool_mode, layer.aligned,
                         layer.use_torchvision)

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Return the features (K, C, *output_size) of K boxes.

        Args:
            input: (N, C, H, W). The memory format ``channels_last`` saves a copy.
            rois: (K, 5), the index of the image and x1, y1, x2, y2 in pixels of the image.
        """
        if (input.device.type != 'cpu' or input.dtype not in (torch.float32, torch.float64)
                or torch.compiler.is_compiling() or torch.jit.is_tracing()
                or torch.is_grad_enabled() and (input.requires_grad or rois.requires_grad)):
            return super().forward(input, rois)
        (height, width), (rows, columns) = input.shape[2:], self.output_size
        vectors = input.permute(0, 2, 3, 1).flatten(0, 2)
        corners = rois[:, 1:] * self.spatial_scale - (.5 if self.aligned else 0)
        start, size = corners[:, :2], corners[:, 2:] - corners[:, :2]
        if not self.aligned:
            size = size.clamp(min=1)
        spans = (size / size.new_tensor([columns, rows])).ceil().clamp(min=0).long()  # cells that a bin may cover
        out = input.new_empty(len(rois), rows, columns, input.shape[1])
        for span in spans.unique(dim=0):  # boxes of one span have index arrays of one shape
            some = (spans == span).all(1).nonzero()[:, 0]
            x, x_weight = self._cells(start[some, 0], size[some, 0], columns, width, int(span[0]))
            y, y_weight = self._cells(start[some, 1], size[some, 1], rows, height, int(span[1]))
            y = y + rois[some, 0].long()[:, None, None] * height
            index = y[:, :, None, :, None] * width + x[:, None, :, None, :]
            weight = y_weight[:, :, None, :, None] * x_weight[:, None, :, None, :]
            bags = F.embedding_bag(index.flatten(3).flatten(0, 2), vectors, mode='sum',
                                   per_sample_weights=weight.flatten(3).flatten(0, 2))
            out[some] = bags.view(len(some), rows, columns, -1)
        return out.permute(0, 3, 1, 2)

    def _cells(self, start: Tensor, size: Tensor, bins: int, length: int, span: int) -> tuple[Tensor, Tensor]:
        """Return the cells of each bin along one axis, and their weights.

        Args:
            start, size: (K, ), the boxes in cells.
            bins: number of bins along this axis.
            length: number of the map's cells.
            span: the size of a bin, rounded up.

        Returns:
            Indices and weights (K, bins, cells that a bin's samples can reach).
        """
        number = self.sampling_ratio if self.sampling_ratio > 0 else max(span, 1)
        position = (torch.arange(bins)[:, None] + (torch.arange(number) + .5) / number) / bins
        sample = start[:, None, None] + position * size[:, None, None]  # (K, bins, number)
        inside = (sample >= -1) & (sample <= length) & (span + self.sampling_ratio > 0)  # no samples of an empty box
        sample = sample.clamp(0, length - 1)
        cell = sample[..., :1].floor() + torch.arange(span + (2 if self.sampling_ratio > 0 else 1))
        weight = (1 - (sample[:, :, None] - cell[..., None]).abs()).clamp(min=0) * inside[:, :, None]
        return cell.clamp(max=length - 1).long(), weight.mean(-1)
