"""Predict in PyTorch's mixed precision."""
from typing import Any

import torch
from mmengine.model import BaseModel, BaseTTAModel
from torch import Tensor, nn

DTYPES = dict(bf16=torch.bfloat16, fp16=torch.float16)


class AutocastModel(BaseTTAModel):
    """Tests a model in ``torch.autocast``; it is the outermost wrapper.

    Args:
        module: a model after :func:`return_float32`.
        dtype: a key of :data:`DTYPES`.
    """

    def __init__(self, module: BaseModel, dtype: str):
        super().__init__(module)
        self.dtype = DTYPES[dtype]

    def merge_preds(self, data_samples_list: list[Any]) -> list[Any]:
        """Return the argument: each image is predicted once."""
        return data_samples_list

    def test_step(self, data: Any) -> list[Any]:
        """Return the predictions of the model for a batch."""
        with torch.autocast(next(self.parameters()).device.type, self.dtype):
            return self.module.test_step(data)


def return_float32(model: nn.Module) -> None:
    """Let a detector decode and suppress boxes in float32 under autocast, and return boxes and scores in it.

    Metrics convert them to NumPy, which has no bfloat16. Outputs of other models have the precision that autocast gives
    them.

    Args:
        model: gets hooks, which change nothing without autocast.
    """
    model.register_forward_hook(_instances_to_float32)
    # mmdet decodes boxes in the type of its heads' outputs. bfloat16 rounds places to multiples of 8 pixels, and
    # batched NMS adds the class's number times the image's side, where half precision cannot tell boxes apart.
    for module in model.modules():
        if hasattr(module, 'predict_by_feat'):
            module.register_forward_hook(_outputs_to_float32)
        if hasattr(module, 'map_roi_levels'):  # it rounds boxes to the type of its maps
            module.register_forward_pre_hook(_inputs_to_float32)


def _instances_to_float32(module: Any, args: Any, outputs: Any) -> None:
    if isinstance(outputs, list):
        for instances in (getattr(sample, 'pred_instances', {}) for sample in outputs):
            for name, value in list(instances.items()):
                instances[name] = to_float32(value)


def _outputs_to_float32(module: Any, args: Any, outputs: Any) -> Any:
    return to_float32(outputs)


def _inputs_to_float32(module: Any, args: Any) -> Any:
    return to_float32(args)


def to_float32(values: Any) -> Any:
    """Return the floating-point tensors in nested tuples and lists in float32, and everything else as it is."""
    if isinstance(values, (tuple, list)):
        return type(values)(map(to_float32, values))
    return values.float() if isinstance(values, Tensor) and values.is_floating_point() else values
