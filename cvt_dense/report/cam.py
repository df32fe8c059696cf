"""Class activation maps of a CvT, computed by the package ``grad-cam``."""
from collections.abc import Callable

import torch
from torch import Tensor, nn

from .attention import find_cvt


def cam_layer(model: nn.Module) -> nn.Module:
    """Return the layer for ``pytorch_grad_cam``'s ``target_layers``: the last block's ``norm1``.

    The map's tokens have a gradient there in every network. After the last block they have none where a classifier
    reads the CLS token alone.
    """
    backbone = find_cvt(model)
    return backbone.stages[-1].blocks[-1].norm1


def cam_reshape(model: nn.Module, image: tuple[int, int]) -> Callable[[Tensor], Tensor]:
    """Return ``pytorch_grad_cam``'s ``reshape_transform``: (B, [1 +] H * W, C) at :func:`cam_layer` to (B, C, H, W).

    Args:
        image: height and width of the network's input in pixels.
    """
    backbone = find_cvt(model)
    height, width = image
    for stage in backbone.stages:
        conv = stage.patch_embed.proj
        height, width = ((side + 2 * conv.padding[0] - conv.kernel_size[0]) // conv.stride[0] + 1
                         for side in (height, width))
    return lambda tokens: tokens[:, -height * width:].unflatten(1, (height, width)).permute(0, 3, 1, 2)


class _Scores(nn.Module):
    """Scores of a class, as the target that the package ``grad-cam`` expects."""

    def __init__(self, model: nn.Module, run: Callable[[Tensor], Tensor]):
        super().__init__()
        self.model, self.run = model, run

    def forward(self, image: Tensor) -> Tensor:
        return self.run(image)


def class_activation(model: nn.Module, image: Tensor, run: Callable[[Tensor], Tensor], index: int) -> Tensor:
    """Compute Grad-CAM (Selvaraju et al. 2017, arXiv 1610.02391) of a class: (H, W), 0 to 1.

    Args:
        model: contains the CvT, in evaluation mode.
        image: (1, 3, H, W), normalised.
        run: function that returns the scores of an image, (B, classes) or (B, classes, H, W); of a map, the
            scores of the pixels count where the class is the best.
        index: number of the class.

    Raises:
        ImportError: the package is not installed.
    """
    from pytorch_grad_cam import GradCAM

    def score(logits: Tensor) -> Tensor:  # of one image, without the batch's axis
        if logits.dim() == 1:
            return logits[index]
        best = logits.detach().argmax(dim=0) == index
        return (logits[index] * best).sum()

    with GradCAM(_Scores(model, run), [cam_layer(model)], cam_reshape(model, tuple(image.shape[2:]))) as cam:
        return torch.from_numpy(cam(image, [score])[0])
