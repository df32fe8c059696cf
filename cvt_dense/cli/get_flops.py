"""Counts parameters and MACs of a network, part by part, attention included.

    python tools/get_flops.py cvt-13 --size 224x224
    python tools/get_flops.py configs/maskrcnn_cvt21_coco.py --size 800x1280

One MAC is one multiplication with its addition in a linear layer, convolution or attention. Norms,
activations, pooling, resizing and a deformable attention's sampling are not counted, as in the
published figures. A detector's second stage is counted for the proposals of random weights on a random
image, limited as in the config: usually 1000 proposals for the box heads and 100 boxes for the mask heads.
"""
import argparse
import copy
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ..launch.command_line import report_errors
from ..models import CvT
from ..pretraining import ImageClassifier, MaskedImageModel
from .random_batch import build_model, forward, parse_size, random_batch


class RandomFeatures(nn.Module):
    """Replaces a backbone whose MACs are known by random outputs of the same shapes."""

    def __init__(self, shapes: list[torch.Size]):
        super().__init__()
        self.shapes = shapes

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.rand(shape) for shape in self.shapes)


def count(parts: dict[str, nn.Module], run: Callable[[], Any]) -> tuple[Counter, Any]:
    """Return the MACs of ``run()`` by part, those outside of all parts under 'other', and the result of ``run()``.

    One part may call modules of another (DINO's decoder those of its head): each counts its own.
    """
    macs = Counter()
    inside, counted = ['other'], 0

    def add_counted() -> None:
        """Add what was counted since the last call to the innermost part."""
        nonlocal counted
        total = counter.get_total_flops() // 2
        macs[inside[-1]] += total - counted
        counted = total

    def enter(name: str, *args: Any) -> None:
        add_counted()
        inside.append(name)

    def leave(*args: Any) -> None:
        add_counted()
        inside.pop()

    hooks = [hook for name, part in parts.items() for module in part.modules()
             for hook in (module.register_forward_pre_hook(partial(enter, name)),
                          module.register_forward_hook(leave))]
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that the counter does not count
    try:
        # The counter counts the matrix products of plain attention, but not the CPU's fused kernel.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            out = run()
            add_counted()
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
        for hook in hooks:
            hook.remove()
    return macs, out


def count_parts(model: nn.Module, size: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """Return (parameters, MACs) of a backbone's stages and of every other part of the model.

    The backbone runs on the meta device, so that its size and the image's cost neither time nor memory.
    """
    model = model.eval()
    backbone = model if isinstance(model, CvT) else model.backbone
    parts = {f'backbone.{name}': module for name, module in backbone.named_children()}
    # A masked image model takes its features from inside the backbone, so all of it runs there.
    alone = model if isinstance(model, MaskedImageModel) else backbone
    twin = copy.deepcopy(alone).to('meta')
    inside = {f'backbone.{name}': module
              for name, module in getattr(twin, 'backbone', twin).named_children()}
    if alone is not backbone:
        parts['decoder'], inside['decoder'] = model.decoder, twin.decoder
    macs, features = count(inside, partial(twin, torch.empty(1, backbone.in_channels, *size, device='meta')))
    if alone is not model:
        others = {name: module for name, module in model.named_children() if name != 'backbone'}
        model.backbone = RandomFeatures([feature.shape for feature in features])
        batch = random_batch(model, 1, size)
        run = partial(forward, model, batch)
        if hasattr(model, 'roi_head'):
            # mmdet's forward without post-processing sends 1000 boxes through Cascade R-CNN's mask heads.
            model.roi_head.test_cfg.score_thr = 0.  # random weights give low scores only
            run = partial(model.predict, batch['inputs'], batch['data_samples'])
        macs.update(count(others, run)[0])
        model.backbone = backbone
        parts.update(others)
    parameters = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    parameters['other'] = sum(p.numel() for p in model.parameters()) - sum(parameters.values())
    return {name: (number, macs[name]) for name, number in parameters.items()}


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
        if args.network in CvT.arch_zoo:
            pooled = CvT.arch_zoo[args.network].get('cls_token') is False
            model = ImageClassifier(dict(type='cvt_dense.CvT', arch=args.network,
                                         out_type='avg_featmap' if pooled else 'cls_token'))
        else:
            model = build_model(args.network)
    parts = count_parts(model, args.size)
    parts['total'] = tuple(map(sum, zip(*parts.values())))
    print(f'{args.network} at {args.size[0]}x{args.size[1]}')
    print(f'{"":<20}{"parameters":>14}{"GMACs":>12}')
    for name, (parameters, macs) in parts.items():
        if parameters or macs:
            print(f'{name:<20}{parameters:>14,}{macs / 1e9:>12.3f}')
