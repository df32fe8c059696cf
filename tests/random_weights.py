"""Weights that show what is lost, and checkpoints of untrained networks."""
from collections.abc import Sequence
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
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


def save_untrained(config: Path, checkpoint: Path, classes: Sequence[str]) -> tuple[Path, Path]:
    """Write a checkpoint of a config's network with its first weights and the names of classes; return both files."""
    cfg = Config.fromfile(config)
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        torch.manual_seed(0)
        weights = MODELS.build(cfg.model).state_dict()
    torch.save(dict(state_dict=weights, meta=dict(dataset_meta=dict(classes=classes))), checkpoint)
    return config, checkpoint
