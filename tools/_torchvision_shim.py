"""Lets a torchvision that was built for CUDA be imported beside a CPU build of torch.

There the compiled operators of torchvision do not load, and ``import torchvision`` (which timm and mmseg do) fails with
``operator torchvision::nms does not exist``. Two declared schemas are enough for the import; nothing in this project
calls the operators. tools/setup.sh copies this file into such a virtual environment, together with a ``.pth`` file that
imports it at the start of Python. It imports torch only when torchvision is about to be imported.
"""
import sys


class _BeforeTorchvision:
    """A finder that finds nothing: it declares the operators when torchvision is first looked for."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == 'torchvision':
            sys.meta_path.remove(cls)
            import torch
            for operator in ('nms', 'qnms'):
                try:
                    torch.library.define(f'torchvision::{operator}',
                                         '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
                except RuntimeError:  # declared already
                    pass


sys.meta_path.insert(0, _BeforeTorchvision)
