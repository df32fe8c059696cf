"""Convolutional projection of two scales."""
from collections.abc import Callable

from torch import Tensor, nn

from ...registry import MODELS


@MODELS.register_module()
class HybridProjection(nn.Module):
    """``bn(conv(x)) + dilated_bn(dilated(x))``, a type of ``proj_cfg``.

    Both convolutions are depth-wise: ``conv`` as published, ``dilated`` 5x5 with dilation 2. The second norm's weight
    starts at 0, so that published weights keep their function. One 9x9 convolution would do the same with 81 weights
    instead of 34.

    Args:
        embed_dims: channels.
        kernel_size, stride, padding: settings of ``conv``; ``padding`` must be (kernel_size - 1) / 2.
        norm_layer: ``channels -> module``.
    """

    def __init__(self, embed_dims: int, kernel_size: int, stride: int, padding: int,
                 norm_layer: Callable[[int], nn.Module]):
        super().__init__()
        self.conv = nn.Conv2d(embed_dims, embed_dims, kernel_size, stride, padding, groups=embed_dims, bias=False)
        self.bn = norm_layer(embed_dims)
        self.dilated = nn.Conv2d(embed_dims, embed_dims, 5, stride, 4, dilation=2, groups=embed_dims, bias=False)
        self.dilated_bn = norm_layer(embed_dims)
        nn.init.zeros_(self.dilated_bn.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, ceil(H / stride), ceil(W / stride))."""
        return self.bn(self.conv(x)) + self.dilated_bn(self.dilated(x))
