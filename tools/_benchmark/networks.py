"""The networks that ``--compare`` names.

To add a column, add a function to ``NETWORKS`` (another network) or to ``CHANGES`` (a change of this CvT).
"""
import argparse
from typing import Any

import timm
import torch
from _random_batch import build_model
from mmengine.model import BaseModel
from torch import nn

from cvt_dense.deploy.cpu import use_cpu_kernels
from cvt_dense.deploy.fuse import fuse
from cvt_dense.models import CvT

from .runtimes import RUNTIMES, runtime_of


def windows(size: Any) -> Any:
    """Return the ``attn_cfg`` of a size of windows, None, or a list of these."""
    if isinstance(size, list):
        return [windows(part) for part in size]
    return None if size is None else dict(type='cvt_dense.WindowedAttention', window_size=size)


def hugging_face(args: argparse.Namespace) -> nn.Module:
    """Return Hugging Face's CvT of the same size with random weights."""
    from transformers import CvtConfig, CvtModel
    arch = CvT.arch_zoo[args.model]
    return CvtModel(CvtConfig(
        embed_dim=list(arch['embed_dims']), depth=list(arch['depths']), num_heads=list(arch['num_heads']),
        drop_path_rate=list(arch['drop_path_rates'])))


NETWORKS = dict(transformers=hugging_face)  # other names are timm's
ATTENTION = dict(  # attn_cfg of CvT
    windowed=lambda args: windows(args.window_size),
    hybrid=lambda args: dict(proj_cfg=dict(type='cvt_dense.HybridProjection')),
    linear=lambda args: [dict(type='cvt_dense.LinearAttention')] * 2 + [None],
    cpb=lambda args: [None, None, dict(rel_pos_cfg=dict(type='cvt_dense.RelPosBias'))],
    rope=lambda args: dict(rel_pos_cfg=dict(type='cvt_dense.RotaryPositions')))
SETTINGS = dict(  # further arguments of CvT
    with_cp=dict(with_cp=True), layer_scale=dict(layer_scale_init_value=1.), pos_embed=dict(pos_embed=[56, 28, 14]))


def _fuse(backbone: nn.Module) -> None:
    fuse(backbone)
    use_cpu_kernels(backbone)


CHANGES = dict(fused=_fuse)  # of the backbone that was built
# compiled is done last, on the device that measures; bf16 is one column's --amp; a runtime takes the whole
VARIANTS = (*ATTENTION, *SETTINGS, *CHANGES, 'compiled', 'bf16', *RUNTIMES)
INFERENCE_ONLY = {'fused', *RUNTIMES}


def build(name: str, args: argparse.Namespace, size: tuple[int, int]) -> nn.Module:
    """Return the network of a ``--compare`` name, on the CPU and not compiled.

    Args:
        name: name of the column.
        args: command line, for the model and the mode.
        size: (H, W) of the image in pixels.
    """
    torch.manual_seed(0)
    network, variants = split_name(name)
    if network is None:
        create = CvT if args.model in CvT.arch_zoo else build_model
        given = {key: value for variant in variants for key, value in SETTINGS.get(variant, {}).items()}
        given.update({'attn_cfg': ATTENTION[variant](args) for variant in variants if variant in ATTENTION})
        model = create(args.model, **given)
    elif network in NETWORKS:
        model = NETWORKS[network](args)
    else:
        img_size = dict(img_size=size) if network.startswith('swin') else {}
        model = timm.create_model(network, features_only=True, **img_size)
    model.train(args.mode == 'train')
    for variant, change in CHANGES.items():
        if variant in variants:
            change(backbone_of(model))
    return model


def compile_column(backbone: nn.Module, variants: list[str], mode: str) -> None:
    """Compile a backbone for its shape at its first step, if that is a variant; for inference weights are constants.

    Args:
        backbone: the backbone.
        variants: variants of the column.
        mode: 'infer' or 'train'.
    """
    if 'compiled' in variants:
        backbone.compile(dynamic=False, options=dict(freezing=True) if mode == 'infer' else None)


def backbone_of(model: nn.Module) -> nn.Module:
    """Return the part of a model that the variants change."""
    return model.backbone if isinstance(model, BaseModel) else model


def split_name(name: str) -> tuple[str | None, list[str]]:
    """Split 'fused+compiled' into (None, ['fused', 'compiled']), 'transformers+compiled' into ('transformers', ...)."""
    parts = name.split('+')
    networks = [part for part in parts if part not in VARIANTS and part != 'eager']
    if len(networks) > 1:
        raise ValueError(f'{name!r} names two networks: {networks}.')
    return (networks[0] if networks else None), [part for part in parts if part in VARIANTS]


def check_name(name: str, args: argparse.Namespace) -> None:
    """Raise ValueError if a ``--compare`` name is unknown, or if these flags cannot measure it."""
    network, variants = split_name(name)
    allowed = ', '.join(VARIANTS)
    if network is not None and args.model not in CvT.arch_zoo:
        raise ValueError(f'--compare {name}: of a config the whole model is measured, and {network} is a backbone '
                         f'alone. Compare it with one of {", ".join(CvT.arch_zoo)} in place of {args.model}, or '
                         f'{args.model} with {allowed}.')
    if network is not None and network not in NETWORKS and not timm.is_model(network):
        raise ValueError(f'--compare {network}: allowed are {", ".join(map(repr, NETWORKS))}, {allowed}, '
                         "timm's networks and combinations of them with +")
    if network is not None and set(variants) - {'compiled', 'bf16'}:
        raise ValueError(f'--compare {name}: {network} can only be combined with compiled and bf16')
    if len(ATTENTION.keys() & set(variants)) > 1:
        raise ValueError(f'--compare {name}: only one of {", ".join(ATTENTION)} can be part of a name')
    runtime = runtime_of(variants)
    if runtime and args.model not in CvT.arch_zoo:
        raise ValueError(f'--compare {name}: {runtime} is measured on the backbone of {", ".join(CvT.arch_zoo)}, not '
                         f'on {args.model}.')
    if runtime and (args.device != 'cpu' or {'compiled', 'bf16'}.intersection(variants)
                    or sum(variant in RUNTIMES for variant in variants) > 1):
        raise ValueError(f'--compare {name}: {runtime} runs on --device cpu, alone or with windowed and fused')
    for variant in sorted(INFERENCE_ONLY.intersection(variants)):
        if args.mode == 'train':
            raise ValueError(f'--compare {name}: {variant} is for inference, not --mode train')
