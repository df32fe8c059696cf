"""Models inside of wrappers."""
from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside of a wrapper for several processes, or the model itself."""
    return model.module if is_model_wrapper(model) else model


def innermost(model: nn.Module) -> nn.Module:
    """Return the model inside of all wrappers, those of a test too."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model
