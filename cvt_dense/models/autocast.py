"""A model that predicts in PyTorch's mixed precision."""
from functools import partial
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ROOT_MODELS
from torch import Tensor

from ..registry import MODELS


@MODELS.register_module(name='AutocastModel')
def autocast_model(dtype: str, replaces: str | type, **model: Any) -> BaseModel:
    """Build a config's model so that its ``forward`` runs in ``torch.autocast``.

    Detectors decode and suppress boxes in float32, and return boxes and scores in it, because metrics convert them to
    NumPy, which has no bfloat16. Other outputs have the precision that autocast gives them.

    Args:
        dtype: 'bf16' or 'fp16'.
        replaces: the config's ``model.type``.
        model: the rest of the config's ``model``.
    """
    network = ROOT_MODELS.build(dict(model, type=replaces))
    network.forward = partial(_forward, network, dict(bf16=torch.bfloat16, fp16=torch.float16)[dtype])
    # mmdet decodes boxes in the type of its heads' outputs. bfloat16 rounds places to multiples of 8 pixels, and
    # batched NMS adds the class's number times the image's side, where half precision cannot tell boxes apart.
    for module in network.modules():
        if hasattr(module, 'predict_by_feat'):
            module.register_forward_hook(_outputs_to_float32)
        if hasattr(module, 'map_roi_levels'):  # it rounds boxes to the type of its maps
            module.register_forward_pre_hook(_inputs_to_float32)
    return network


def _forward(network: BaseModel, dtype: torch.dtype, *args: Any, **kwargs: Any) -> Any:
    """Run the ``forward`` of a model's class under autocast."""
    with torch.autocast(next(network.parameters()).device.type, dtype):
        outputs = type(network).forward(network, *args, **kwargs)
    if isinstance(outputs, list):
        for instances in (getattr(sample, 'pred_instances', {}) for sample in outputs):
            for name, value in list(instances.items()):
                instances[name] = to_float32(value)
    return outputs


def _outputs_to_float32(module: Any, args: Any, outputs: Any) -> Any:
    return to_float32(outputs)


def _inputs_to_float32(module: Any, args: Any) -> Any:
    return to_float32(args)


def to_float32(values: Any) -> Any:
    """Return the floating-point tensors in nested tuples and lists in float32, and everything else as it is."""
    if isinstance(values, (tuple, list)):
        return type(values)(map(to_float32, values))
    return values.float() if isinstance(values, Tensor) and values.is_floating_point() else values
