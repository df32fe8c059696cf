"""Every seam with torch, torchvision and MMEngine, each with its reason.

Import this module before timm, torchvision or mmseg.
"""
import importlib.metadata

import torch


def _declare_torchvision_ops() -> None:
    """Lets PyPI's torchvision wheel (built for CUDA) be imported beside a CPU-only torch.

    There its compiled operators cannot load, and ``import torchvision`` (which timm and mmseg do)
    dies with ``operator torchvision::nms does not exist``. Only the two schemas are needed for the
    import; nothing in this project calls the operators.
    """
    if torch.version.cuda or torch.version.hip:
        return
    try:
        if '+cpu' in importlib.metadata.version('torchvision'):
            return  # matching CPU build: brings its own operators
    except importlib.metadata.PackageNotFoundError:
        return
    for schema in ('nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
                   'qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'):
        try:
            torch.library.define(f'torchvision::{schema.split("(")[0]}', schema[schema.index('('):])
        except RuntimeError:
            pass  # declared before: by torchvision itself or by an earlier import


_declare_torchvision_ops()
