"""Faster inference of a trained CvT: layers folded into each other, and a compiled backbone."""
from collections import defaultdict
from collections.abc import Iterable

import torch
from mmcv.cnn import fuse_conv_bn
from mmcv.ops import RoIAlign
from mmengine.logging import print_log
from timm.layers import LayerScale, Mlp
from torch import nn

from ..errors import UserError
from ..models.attention import Block, ConvAttention, QuickGELU
from ..models.cvt import CvT
from .attention import InferenceAttention
from .linear import InferenceLinear
from .roi_align import InferenceRoIAlign

SAMPLE_SIZE = 224  # height and width of the image with which fuse() times the linear layers


def find_backbones(model: nn.Module) -> list[CvT]:
    """Return every CvT in ``model``.

    Raises:
        UserError: there is none.
    """
    found = [module for module in model.modules() if isinstance(module, CvT)]
    if not found:
        raise UserError(f'{type(model).__name__} has no cvt_dense.CvT, which is what can be fused and compiled.')
    return found


@torch.no_grad()
def fuse(model: nn.Module, choose_libraries: bool = True) -> None:
    """Make every CvT in ``model`` faster for inference with the same output, in place, and on a CPU also the heads.

    Folds each BatchNorm into its depth-wise convolution, LayerScale into the linear layer before it, and QuickGELU's
    factor into the MLP's two linear layers, so that it becomes SiLU. Call it last: after loading the weights and
    ``eval()``, before moving to a lower precision, ``torch.compile`` or export. The parameters of a fused network take
    no gradient, and it loads no checkpoint.

    Args:
        model: a CvT, or any model with one or more.
        choose_libraries: for weights in float32 or bfloat16 on a CPU, also time each kind of linear layer, and each
            kind of attention in bfloat16, and keep the faster of two implementations (:class:`.linear.InferenceLinear`,
            :class:`.attention.InferenceAttention`); exchange mmcv's RoIAlign for
            :class:`.roi_align.InferenceRoIAlign`; and give the convolutions of necks and heads weights in the memory
            format ``channels_last``. Compilers and exporters choose for themselves.

    Raises:
        RuntimeError: in training mode.
        UserError: ``model`` has no CvT.
    """
    for backbone in find_backbones(model):
        if backbone.training:
            raise RuntimeError('fuse() folds the stored BatchNorm statistics: load the weights and call eval() first.')
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
    if choose_libraries and _is_for_cpu(model):
        choices: dict[tuple, bool] = {}
        attention: dict[tuple, InferenceAttention] = defaultdict(InferenceAttention)
        for backbone in find_backbones(model):
            for module in list(backbone.modules()):
                if isinstance(module, ConvAttention):
                    module.softmax_attention = attention[type(module), module.num_heads]
                if isinstance(module, Mlp) and isinstance(module.act, nn.SiLU):
                    module.fc1, module.act = InferenceLinear(module.fc1, choices, silu=True), nn.Identity()
            _exchange_layers(backbone.modules(), choices)
            image = next(backbone.parameters()).new_zeros(1, backbone.in_channels, SAMPLE_SIZE, SAMPLE_SIZE)
            backbone(image)
        print_log(f'{sum(choices.values())} of {len(choices)} kinds of linear layers in the backbone run on packed '
                  'weights (oneDNN), which is faster on this CPU.', logger='current')
        _exchange_layers_of_heads(model)


def _is_for_cpu(model: nn.Module) -> bool:
    weight = next(find_backbones(model)[0].parameters())
    return weight.device.type == 'cpu' and weight.dtype in (torch.float32, torch.bfloat16)


def _exchange_layers(modules: Iterable[nn.Module], choices: dict[tuple, bool]) -> None:
    """Exchange the children of ``modules`` for which a CPU has a faster implementation."""
    for module in list(modules):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, InferenceLinear(child, choices))
            elif type(child) is RoIAlign and child.pool_mode == 'avg':
                setattr(module, name, InferenceRoIAlign(child))


def _exchange_layers_of_heads(model: nn.Module) -> None:
    """Exchange layers outside the backbones, and give convolutions there the memory format of oneDNN's fastest kernels.

    The first prediction decides between the libraries for linear layers.
    """
    inside = {module for backbone in find_backbones(model) for module in backbone.modules()}
    outside = [module for module in model.modules() if module not in inside]
    for module in outside:
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
            module.to(memory_format=torch.channels_last)
    _exchange_layers(outside, {})


def _refuse_to_load(*args: object) -> None:
    raise RuntimeError('this CvT was fused for inference: its parameters are no longer those of a checkpoint. Load the '
                       'checkpoint first, then call fuse().')


def compile_backbone(model: nn.Module) -> None:
    """Fuse ``model`` in place and compile every CvT in it at the first images, which takes a minute or more.

    Single images of all sizes share what is compiled, and so do batches. Under ``torch.no_grad()`` the
    weights are constants, laid out for the matrix kernels beforehand, which is what makes it faster on a CPU. Outputs
    differ by rounding.

    Raises:
        RuntimeError, UserError: as :func:`fuse`.
    """
    import torch._inductor.config as inductor  # takes seconds

    inductor.freezing = True  # for the whole process: the compiler reads it at each compilation
    fuse(model, choose_libraries=False)
    if _is_for_cpu(model):
        _exchange_layers_of_heads(model)
    for backbone in find_backbones(model):
        for module in backbone.modules():
            if hasattr(module, 'opaque'):
                module.opaque = True
        backbone.compile(dynamic=True)
