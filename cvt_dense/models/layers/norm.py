"""LayerNorm as CvT computes it."""
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """LayerNorm over the last axis, computed in float32 whatever the input's type (the authors' class).

    The result has the input's type. ``eps`` is PyTorch's 1e-5.
    """

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight.float(), self.bias.float()
        # Autocast on the CPU would leave layer_norm in the low precision it was given.
        return F.layer_norm(x.float(), self.normalized_shape, weight, bias, self.eps).to(x.dtype)


class QuickGELU(nn.Module):
    """``x * sigmoid(1.702 x)``, the activation of the authors' checkpoints (not the exact GELU).

    Args:
        inplace: may overwrite its input.
    """

    factor = 1.702

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, x: Tensor) -> Tensor:
        # As SiLU of the scaled input: keeps two tensors for the backward pass, not three. SiLU's
        # gradient needs its input only, so its output may be scaled in place.
        x = x.mul_(self.factor) if self.inplace else x * self.factor
        return F.silu(x, inplace=not x.requires_grad).mul_(1 / self.factor)
