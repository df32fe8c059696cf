"""Fold layers of a trained CvT into each other, for faster inference."""
from typing import Any

import torch
from mmcv.cnn import fuse_conv_bn
from timm.layers import LayerScale, Mlp
from torch import nn

from ..errors import UserError
from ..models.attention import Block, QuickGELU
from ..models.cvt import CvT


@torch.no_grad()
def fuse(model: nn.Module) -> None:
    """Fold layers of every CvT in ``model`` into each other, in place, with the same output.

    Folds each BatchNorm into its depth-wise convolution, LayerScale into the linear layer before it, and QuickGELU's
    factor into the MLP's two linear layers, so that it becomes SiLU. Call it after loading the weights and ``eval()``,
    before a lower precision, ``torch.compile`` or export. A fused network cannot be trained, and it loads no
    checkpoint.

    Args:
        model: a CvT, or any model with one or more.

    Raises:
        RuntimeError: in training mode.
        UserError: ``model`` has no CvT, or a layer to be changed is not a plain one, such as LoRA's or a pruned one.
    """
    backbones = [module for module in model.modules() if isinstance(module, CvT)]
    if not backbones:
        raise UserError(f'{type(model).__name__} has no cvt_dense.CvT, which is what can be fused: leave --fuse out.')
    for backbone in backbones:
        if backbone.training:
            raise RuntimeError('fuse() folds the stored BatchNorm statistics: load the weights and call eval() first.')
        _check_layers(backbone)
    for backbone in backbones:
        fuse_conv_bn(backbone)
        for module in backbone.modules():
            if isinstance(module, Mlp) and isinstance(module.act, QuickGELU):
                module.fc1.weight.mul_(QuickGELU.factor)
                module.fc1.bias.mul_(QuickGELU.factor)
                module.fc2.weight.div_(QuickGELU.factor)
                module.act = nn.SiLU(inplace=True)
            if isinstance(module, Block):
                for name, linear in (('ls1', module.attn.proj), ('ls2', module.mlp.fc2)):
                    scale = getattr(module, name)
                    if isinstance(scale, LayerScale):
                        linear.weight.mul_(scale.gamma[:, None])
                        linear.bias.mul_(scale.gamma)
                        setattr(module, name, nn.Identity())
        backbone.requires_grad_(False)
        backbone.register_load_state_dict_pre_hook(_refuse_to_load)
        backbone.register_forward_pre_hook(_refuse_to_train)


def _check_layers(backbone: CvT) -> None:
    """Refuse layers whose class or hooks may change the weight: what is folded into it would be lost or wrong."""
    for name, module in backbone.named_modules():
        plain = type(module) in (nn.Linear, nn.Conv2d) and not module._forward_pre_hooks
        changed = name.endswith(('.attn.proj', '.mlp.fc1', '.mlp.fc2')) or isinstance(module, nn.Conv2d)
        if changed and not plain:
            raise UserError(f'fuse() cannot fold {name}, a {type(module).__name__} whose class or hooks may change the '
                            'weight: merge adapters, parametrizations and pruning masks into the weight first.')


def _refuse_to_train(backbone: CvT, args: tuple) -> None:
    if backbone.training:
        raise RuntimeError('this CvT was fused for inference and cannot be trained: build the model again and load its '
                           'checkpoint.')


def _refuse_to_load(*args: Any) -> None:
    raise RuntimeError('this CvT was fused for inference: its parameters are no longer those of a checkpoint. Load the '
                       'checkpoint first, then call fuse().')
