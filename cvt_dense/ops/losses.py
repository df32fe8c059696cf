"""The focal loss with the signatures of ``mmcv._ext``, whose functions write their results into given tensors."""
import torch
from torch import Tensor

TINY = torch.finfo(torch.float32).tiny  # mmcv's lower bound of a logarithm's argument


def sigmoid_focal_loss_forward(input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float,
                               alpha: float) -> None:
    """Write the focal loss (Lin et al. 2017) of logits into ``output``.

    Args:
        input: logits (N, classes).
        target: class numbers (N, ), int64; the number of classes is the background.
        weight: factors of the classes (classes, ), or an empty tensor.
        output: (N, classes).
        gamma: exponent of the modulating factor.
        alpha: weight of positive targets; that of negative ones is ``1 - alpha``.
    """
    p, positive, factor = _sigmoid(input, target, weight)
    loss = torch.where(positive, -alpha * (1 - p)**gamma * _log(p), -(1 - alpha) * p**gamma * _log(1 - p))
    output.copy_(loss * factor)


def sigmoid_focal_loss_backward(input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float,
                                alpha: float) -> None:
    """Write the derivative of :func:`sigmoid_focal_loss_forward` by the logits into ``grad_input``."""
    p, positive, factor = _sigmoid(input, target, weight)
    q = 1 - p
    grad = torch.where(positive, -alpha * q**gamma * (q - gamma * p * _log(p)),
                       -(1 - alpha) * p**gamma * (gamma * q * _log(q) - p))
    grad_input.copy_(grad * factor)


def _log(x: Tensor) -> Tensor:
    return x.clamp(min=TINY).log()


def _sigmoid(input: Tensor, target: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor | float]:
    classes = input.shape[1]
    p = (input if input.dtype == torch.float64 else input.float()).sigmoid()
    positive = target[:, None] == torch.arange(classes, device=input.device)
    return p, positive, weight[target.clamp(0, classes - 1)][:, None] if weight.numel() else 1.
