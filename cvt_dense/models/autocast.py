"""A model whose layers run in PyTorch's mixed precision, and whatever follows them in float32."""
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ROOT_MODELS

from ..precision import heads, run_in_autocast, run_operators_in_float32
from ..registry import MODELS


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
    for part in dict.fromkeys([*parts, *heads(network)]):
        if next(part.parameters(), None) is not None:
            run_in_autocast(part, dict(bf16=torch.bfloat16, fp16=torch.float16)[dtype])
    run_operators_in_float32(network)
    return network
