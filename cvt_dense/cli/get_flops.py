"""Counts parameters and MACs of a network, part by part, attention included.

    python tools/get_flops.py cvt-13 --size 224x224
    python tools/get_flops.py configs/maskrcnn_cvt21_coco.py --size 800x1280

One MAC is one multiplication with its addition in a linear layer, convolution or attention. Norms,
activations, pooling, resizing and a deformable attention's sampling are not counted, as in the
published figures. A detector's second stage is counted for the proposals of random weights on a random
image, limited as in the config: usually 1000 proposals for the box heads and 100 boxes for the mask heads.
"""
import argparse
import re
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from torch.utils.flop_counter import FlopCounterMode

from ..console import prints_to_log
from ..deploy.networks import Network
from ..errors import refusals_of
from ..models import CvT
from ..pretraining import ImageClassifier
from ..published import read_config
from .command_line import report_errors


def parse_size(text: str) -> tuple[int, int]:
    """Parse '800x1280' as (800, 1280), height first, and '224' as (224, 224)."""
    height, _, width = text.partition('x')
    if not height.isdecimal() or not (width or height).isdecimal() or min(int(height), int(width or height)) < 16:
        raise argparse.ArgumentTypeError(f'{text!r}: allowed is HEIGHTxWIDTH, such as 800x1280, of at least 16 pixels')
    return int(height), int(width or height)


def build_model(network: str, **backbone: Any) -> BaseModel:
    """Build the model of a config file, or the classifier of an architecture, with random weights.

    Args:
        network: config file, or a key of :attr:`CvT.arch_zoo`.
        backbone: settings of a config's backbone to override, such as ``attn_cfg``.
    """
    if network in CvT.arch_zoo:
        pooled = CvT.arch_zoo[network].get('cls_token') is False
        return ImageClassifier(dict(type='cvt_dense.CvT', arch=network,
                                    out_type='avg_featmap' if pooled else 'cls_token'))
    cfg = read_config(network)
    cfg.model.get('backbone', {}).update(init_cfg=None, **backbone)
    scope = DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine')
    with scope, prints_to_log(), refusals_of('model'):
        return revert_sync_batchnorm(MODELS.build(cfg.model))


def attention_flops(query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, **__: Any) -> int:
    """Return the FLOPs of the two products of attention, of shapes (B, heads, tokens, channels)."""
    return 2 * query[:3].numel() * key[2] * (query[3] + value[3])


# PyTorch's counter has no formula for the CPU's kernel.
FORMULAS = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention_flops}


def count_parts(model: BaseModel, size: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return (parameters, MACs) of a backbone's stages, of every other part of the model, and in 'total' of all.

    The network runs once on a random image, on the device of its parameters.
    """
    if hasattr(model, 'roi_head'):
        model.roi_head.test_cfg.score_thr = 0.  # random weights give low scores only
    model.eval()
    parts = {f'backbone.{name}': stage for name, stage in model.backbone.named_children()}
    parts.update((name, part) for name, part in model.named_children() if name != 'backbone')
    network = Network(model)
    image = torch.rand(1, getattr(model.backbone, 'in_channels', 3), *size, device=next(model.parameters()).device)
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that the counter does not count
    try:
        with FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter, torch.no_grad():
            network(image)
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
    flops = {re.sub(r'^Network\.model\.?', '', name): sum(operators.values())
             for name, operators in counter.get_flop_counts().items()}
    macs = {name: flops_of_part(flops, name) // 2 for name in parts} | dict(total=counter.get_total_flops() // 2)
    return {name: (sum(parameter.numel() for parameter in part.parameters()), macs[name])
            for name, part in dict(parts, total=model).items()}


def flops_of_part(flops: dict[str, int], part: str) -> int:
    """Return the FLOPs of a part of a model: those of its outermost modules that were called themselves."""
    called = [name for name in flops if name == part or name.startswith(f'{part}.')]
    return sum(flops[name] for name in called if not any(name.startswith(f'{other}.') for other in called))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('network', help=f'config file, or one of {", ".join(CvT.arch_zoo)}')
    parser.add_argument('--size', type=parse_size, default=(224, 224), metavar='HxW',
                        help='height and width of the image in pixels (default: 224x224)')
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Print the parameters and multiply-accumulate operations of a network."""
    args = build_parser().parse_args(argv)
    torch.manual_seed(0)
    with report_errors(ValueError, FileNotFoundError):
        parts = count_parts(build_model(args.network), args.size)
    print(f'{args.network} at {args.size[0]}x{args.size[1]}')
    print(f'{"":<20}{"parameters":>14}{"GMACs":>12}')
    for name, (parameters, macs) in parts.items():
        if parameters or macs:
            print(f'{name:<20}{parameters:>14,}{macs / 1e9:>12.3f}')
