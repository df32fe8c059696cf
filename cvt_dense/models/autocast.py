"""A model whose layers run in PyTorch's mixed precision, and whatever follows them in float32."""
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ROOT_MODELS
from torch import Tensor
from torch.utils._pytree import tree_map

from ..registry import MODELS


class _InAutocast:
    """Put before a module's own class: its forward in mixed precision, its outputs in float32."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        device = next(self.parameters()).device.type
        with torch.autocast(device, self.autocast_dtype):
            outputs = super().forward(*args, **kwargs)
        return tree_map(lambda value: value.float() if isinstance(value, Tensor) and value.dtype == self.autocast_dtype
                        else value, outputs)


@MODELS.register_module(name='AutocastModel')
def autocast_model(dtype: str, replaces: str | type, **model: Any) -> BaseModel:
    """A config's model whose backbone, neck and heads each run in mixed precision, for inference.

    Around all of a detector, mixed precision would hand numbers of 16 bits to RoIAlign and NMS, which mmcv has in
    float32 only, and compute boxes with them.

    Args:
        dtype: 'bf16' or 'fp16'.
        replaces: the config's ``model.type``.
        model: the rest of the config's ``model``.
    """
    network = ROOT_MODELS.build(dict(model, type=replaces))
    parts = [part for part in network.children() if part is not network.data_preprocessor]
    parts += [module for part in parts for module in part.modules() if hasattr(module, 'predict_by_feat')]
    for part in dict.fromkeys(parts):
        if next(part.parameters(), None) is not None:
            # A class of its own, not a hook: heads call forward() themselves, and copies of the model keep it.
            part.__class__ = type(type(part).__name__, (_InAutocast, type(part)), {})
            part.autocast_dtype = dict(bf16=torch.bfloat16, fp16=torch.float16)[dtype]
    return network
