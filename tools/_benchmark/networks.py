"""What a ``--compare`` name stands for.

A further column is a function in ``NETWORKS`` (something else than this CvT) or in ``CHANGES`` (something done to it).
"""
import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import timm
import torch
from _random_batch import build_model
from mmengine.model import BaseModel
from torch import Tensor, nn

from cvt_dense.models import CvT

from .runtimes import RUNTIMES, runtime_of


def einsum_attention(num_heads: int, scale: float, q: Tensor, k: Tensor, v: Tensor, hw_shape: object = None) -> Tensor:
    """What the authors' code computes, one operation after the other."""
    q, k, v = (y.unflatten(2, (num_heads, -1)).transpose(1, 2) for y in (q, k, v))
    weights = (torch.einsum('bhlk,bhtk->bhlt', q, k) * scale).softmax(dim=-1)
    return torch.einsum('bhlt,bhtv->bhlv', weights, v).transpose(1, 2).flatten(2)


def use_einsum(backbone: nn.Module) -> None:
    for module in backbone.modules():
        if hasattr(module, '_attend'):
            module._attend = partial(einsum_attention, module.num_heads, module.scale)


def hugging_face(args: argparse.Namespace) -> nn.Module:
    from transformers import CvtConfig, CvtModel
    arch = CvT.arch_zoo[args.model]
    return CvtModel(CvtConfig(
        embed_dim=list(arch['embed_dims']), depth=list(arch['depths']), num_heads=list(arch['num_heads']),
        drop_path_rate=list(arch['drop_path_rates'])))


NETWORKS = dict(transformers=hugging_face)  # other names are timm's
SETTINGS = dict(  # of CvT's constructor
    windowed=lambda args: dict(window_size=args.window_size),
    with_cp=lambda args: dict(with_cp=True),
    layer_scale=lambda args: dict(layer_scale_init_value=1.),
    hybrid=lambda args: dict(mixing='hybrid'),
    linear=lambda args: dict(attention=['linear', 'linear', 'softmax']),
    pos_embed=lambda args: dict(pos_embed=[56, 28, 14]),
    cpb=lambda args: dict(rel_pos=[None, None, 'cpb']),
    rope=lambda args: dict(rel_pos='rope'),
    **{f'pruned{percent}': lambda args, keep=percent / 100: dict(token_pruning=dict(keep=keep))
       for percent in (90, 70, 50, 30)})
CHANGES = dict(fused=lambda backbone: backbone.fuse(), einsum=use_einsum)  # of the backbone that was built
# compiled and anysize are done last, on the device that measures; bf16 is one column's --amp; a runtime takes the whole
VARIANTS = (*SETTINGS, *CHANGES, 'compiled', 'anysize', 'bf16', *RUNTIMES)
INFERENCE_ONLY = {'fused', 'anysize', *RUNTIMES}


def build(name: str, args: argparse.Namespace, size: tuple[int, int]) -> nn.Module:
    """What a ``--compare`` name stands for, in evaluation or training mode, on the CPU, not yet compiled."""
    torch.manual_seed(0)
    network, variants = split_name(name)
    if network is None:
        create = CvT if args.model in CvT.arch_zoo else build_model
        given = {key: value for variant in variants if variant in SETTINGS
                 for key, value in SETTINGS[variant](args).items()}
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


@contextmanager
def compiling(backbone: nn.Module, variants: list[str], mode: str) -> Iterator[None]:
    """Its first step must be inside: 'compiled' for that shape, 'anysize' as tools/test.py --compile does.

    For inference both have the weights as constants.
    """
    import torch._inductor.config as inductor
    if 'anysize' in variants:
        backbone.fuse(compile=True)
    else:
        backbone.compile(dynamic=False)
    with inductor.patch(freezing=mode == 'infer'):
        yield


def backbone_of(model: nn.Module) -> nn.Module:
    """What the variants change."""
    return model.backbone if isinstance(model, BaseModel) else model


def split_name(name: str) -> tuple[str | None, list[str]]:
    """'fused+compiled' to (None, ['fused', 'compiled']); 'transformers+compiled' to ('transformers', ...)."""
    parts = name.split('+')
    networks = [part for part in parts if part not in VARIANTS and part != 'eager']
    if len(networks) > 1:
        raise ValueError(f'{name!r} names two networks: {networks}.')
    return (networks[0] if networks else None), [part for part in parts if part in VARIANTS]


def check_name(name: str, args: argparse.Namespace) -> None:
    """Raises ValueError if a ``--compare`` name stands for nothing, or for nothing that these flags can measure."""
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
    runtime = runtime_of(variants)
    if runtime and args.model not in CvT.arch_zoo:
        raise ValueError(f'--compare {name}: {runtime} is measured on the backbone of {", ".join(CvT.arch_zoo)}, not '
                         f'on {args.model}; tools/export.py CONFIG ... --evaluate times the files of a config.')
    if runtime and (args.device != 'cpu' or {'compiled', 'anysize', 'einsum', 'bf16'}.intersection(variants)
                    or sum(variant in RUNTIMES for variant in variants) > 1):
        raise ValueError(f'--compare {name}: {runtime} runs on --device cpu, alone or with windowed and fused')
    for variant in sorted(INFERENCE_ONLY.intersection(variants)):
        if args.mode == 'train':
            raise ValueError(f'--compare {name}: {variant} is for inference, not --mode train')
