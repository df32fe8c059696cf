"""Weights that show what is lost."""
from torch import nn


def randomise(model: nn.Module) -> nn.Module:
    """Give a model weights and statistics of which none has its neutral value, and return it for inference."""
    for name, value in model.state_dict().items():
        if name.endswith(('bias', 'running_mean')):
            value.normal_(std=0.1)
        elif name.endswith('running_var') or (name.endswith(('weight', 'gamma')) and value.dim() == 1):
            value.uniform_(0.7, 1.4)
        elif value.is_floating_point() and value.dim() > 1:
            value.normal_(std=value[0].numel()**-0.5)
    return model.eval()
