"""Lets a torchvision that was built for CUDA be imported beside a CPU build of torch.

There the compiled operators of torchvision do not load, and ``import torchvision`` (which timm and mmseg do) fails with
``operator torchvision::nms does not exist``. Two declared schemas are enough for the import; nothing in this project
calls the operators. tools/setup.sh installs this file into such a virtual environment as an entry point of the group
``torch.backends``, which PyTorch calls at the end of its own import.
"""


def declare() -> None:
    """Declare the operators whose absence fails the import of torchvision."""
    import torch
    for operator in ('nms', 'qnms'):
        torch.library.define(f'torchvision::{operator}', '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
