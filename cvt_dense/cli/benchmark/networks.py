"""The networks that ``--compare`` names: this CvT with variants, Hugging Face's, or one of timm.

To add a variant, add its arguments of CvT to ``SETTINGS``.
"""
import argparse

import timm
import torch
from mmengine.model import BaseModel
from torch import nn

from ...deploy.cpu import use_cpu_kernels
from ...deploy.fuse import fuse
from ...models import CvT
from ..random_batch import build_model
from .runtimes import RUNTIMES, runtime_of

WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=28)
SETTINGS = dict(
    windowed=dict(attn_cfg=[WINDOWS, WINDOWS, None]),
    # as configs/maskrcnn_cvt13_coco_win.py
    windowed_all=dict(attn_cfg=[WINDOWS, WINDOWS, [*[WINDOWS, WINDOWS, None] * 2, *[WINDOWS] * 3, None]]),
    hybrid=dict(attn_cfg=dict(proj_cfg=dict(type='cvt_dense.HybridProjection'))),
    linear=dict(attn_cfg=[*[dict(type='cvt_dense.LinearAttention')] * 2, None]),
    cpb=dict(attn_cfg=[None, None, dict(rel_pos_cfg=dict(type='cvt_dense.RelPosBias'))]),
    rope=dict(attn_cfg=dict(rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))),
    with_cp=dict(with_cp=True),
    layer_scale=dict(layer_scale_init_value=1.),
    pos_embed=dict(pos_embed=[56, 28, 14]))
INFERENCE_ONLY = {'fused', *RUNTIMES}
# bf16 is one column's --amp; compiled is done last, on the device that measures; a runtime takes the whole
VARIANTS = (*SETTINGS, 'fused', 'compiled', 'bf16', *RUNTIMES)


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
        model = create(args.model, **{key: value for variant in variants
                                      for key, value in SETTINGS.get(variant, {}).items()})
    elif network == 'transformers':
        from transformers import CvtConfig, CvtModel
        arch = CvT.arch_zoo[args.model]
        names = dict(embed_dim='embed_dims', depth='depths', num_heads='num_heads', drop_path_rate='drop_path_rates')
        model = CvtModel(CvtConfig(**{theirs: list(arch[ours]) for theirs, ours in names.items()}))
    else:
        img_size = dict(img_size=size) if network.startswith('swin') else {}
        model = timm.create_model(network, features_only=True, **img_size)
    model.train(args.mode == 'train')
    if 'fused' in variants:
        fuse(backbone_of(model))
        use_cpu_kernels(backbone_of(model))
    return model


def backbone_of(model: nn.Module) -> nn.Module:
    """Return the part of a model that the variants change."""
    return model.backbone if isinstance(model, BaseModel) else model


def split_name(name: str) -> tuple[str | None, list[str]]:
    """Split 'fused+compiled' into (None, ['fused', 'compiled']), 'transformers+compiled' into ('transformers', ...)."""
    parts = name.split('+')
    network = '+'.join(part for part in parts if part not in VARIANTS and part != 'eager')
    return network or None, [part for part in parts if part in VARIANTS]


def check_name(name: str, args: argparse.Namespace) -> None:
    """Raise ValueError if a ``--compare`` name is unknown, or if these flags cannot measure it."""
    network, variants = split_name(name)
    if network not in (None, 'transformers') and not timm.is_model(network):
        raise ValueError(f"--compare {name}: allowed are 'transformers', {', '.join(VARIANTS)}, timm's networks, and "
                         'combinations of these with +')
    if args.model not in CvT.arch_zoo and (network or runtime_of(variants)):
        raise ValueError(f'--compare {name}: this column measures a backbone alone, and {args.model} is a whole model. '
                         f'Give one of {", ".join(CvT.arch_zoo)} in its place.')
    if network and set(variants) - {'compiled', 'bf16'}:
        raise ValueError(f'--compare {name}: {network} can only be combined with compiled and bf16')
    if args.mode == 'train' and INFERENCE_ONLY.intersection(variants):
        raise ValueError(f'--compare {name}: {", ".join(sorted(INFERENCE_ONLY))} are for inference, not --mode train')
