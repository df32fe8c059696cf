"""Models inside of wrappers."""
from mmengine.model import is_model_wrapper
from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside of a wrapper for several processes, or the model itself."""
    return model.module if is_model_wrapper(model) else model
