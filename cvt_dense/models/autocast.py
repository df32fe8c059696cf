"""A model that predicts in PyTorch's mixed precision."""
from typing import Any

import torch
from mmengine.model import BaseModel
from mmengine.registry import MODELS as ROOT_MODELS

from ..registry import MODELS


class AutocastMixin:
    """A model whose ``forward`` runs in ``torch.autocast``.

    Boxes and scores of detectors are returned in float32, because metrics convert them to NumPy, which has no bfloat16.
    Other outputs have the precision that autocast gives them.
    """

    autocast_dtype: torch.dtype

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the base class's ``forward`` under autocast."""
        with torch.autocast(next(self.parameters()).device.type, self.autocast_dtype):
            outputs = super().forward(*args, **kwargs)
        for sample in outputs if isinstance(outputs, list) else ():
            found = getattr(sample, 'pred_instances', {})
            for name in [key for key, value in found.items() if getattr(value, 'dtype', None) == self.autocast_dtype]:
                found[name] = found[name].float()
        return outputs


@MODELS.register_module(name='AutocastModel')
def autocast_model(dtype: str, replaces: str | type, **model: Any) -> BaseModel:
    """Build a config's model as a subclass that predicts in mixed precision.

    Args:
        dtype: 'bf16' or 'fp16'.
        replaces: the config's ``model.type``.
        model: the rest of the config's ``model``.
    """
    with ROOT_MODELS.switch_scope_and_registry(None) as registry:
        base = registry.get(replaces) if isinstance(replaces, str) else replaces
        attributes = dict(autocast_dtype=dict(bf16=torch.bfloat16, fp16=torch.float16)[dtype])
        return type(base.__name__, (AutocastMixin, base), attributes)(**model)
