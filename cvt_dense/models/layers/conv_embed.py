"""Convolutional token embedding (paper, section 3.1)."""

import torch
from torch import Tensor, nn

from .norm import LayerNorm


def for_convolution(feature_map: Tensor) -> Tensor:
    """The same map, where torch.compile would mistake its layout; nothing is done otherwise.

    Of tokens seen as the map of a single image, the compiler (torch 2.13, dynamic sizes) makes a view whose batch has
    stride 0, which oneDNN's convolution takes for a map that is not channels-last. Of the copy, which the operation
    before writes, the compiler chooses the layout itself.
    """
    if feature_map.shape[0] == 1 and torch.compiler.is_dynamo_compiling():
        return feature_map.clone(memory_format=torch.contiguous_format)
    return feature_map


class ConvEmbed(nn.Module):
    """Overlapping strided convolution, then LayerNorm over channels.

    Args:
        in_channels: channels of the input map.
        embed_dims: channels of the tokens.
        kernel_size, stride, padding: of the convolution, in pixels of the input map.
    """

    def __init__(self, in_channels: int, embed_dims: int, kernel_size: int, stride: int, padding: int):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, embed_dims, kernel_size, stride, padding)
        self.norm = LayerNorm(embed_dims)

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """(B, C, H, W) to tokens (B, H' * W', embed_dims) and (H', W').

        ``H' = (H + 2 * padding - kernel_size) // stride + 1``.
        """
        x = self.proj(for_convolution(x))
        hw_shape = (x.shape[2], x.shape[3])
        return self.norm(x.flatten(2).transpose(1, 2)), hw_shape
