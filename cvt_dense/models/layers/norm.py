"""Norms and activation as CvT computes them."""
import torch.nn.functional as F
from torch import Tensor, nn


def keeps_statistics(module: nn.Module) -> bool:
    """Whether ``module`` is a BatchNorm of whatever class, with the running statistics of its batches.

    ``SyncBN`` derives from PyTorch's ``_BatchNorm``, mmcv's ``MMSyncBN`` does not.
    """
    return getattr(module, 'running_mean', None) is not None


class LayerNorm(nn.LayerNorm):
    """LayerNorm over the last axis, computed in float32 or wider, with the result in the input's type.

    PyTorch's kernels compute bfloat16 and float16 input in float32 inside; autocast on CUDA casts the
    input to float32 and leaves the result there. ``eps`` is PyTorch's 1e-5.

    The residual stream so stays in the lower precision under autocast. In bfloat16 that costs the CLS token a relative
    error of 0.0126 instead of 0.0093 with a float32 stream (fp16: 0.0016; eval, CPU), not worth twice its memory.
    """

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).to(x.dtype)


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
