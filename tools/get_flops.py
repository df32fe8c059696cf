"""Counts parameters and MACs of a network, part by part, attention included.

    python tools/get_flops.py cvt-13 --size 224 224
    python tools/get_flops.py configs/maskrcnn_cvt21_coco.py --size 800 1280

One MAC is one multiplication with its addition in a linear layer, convolution or attention. Norms,
activations, pooling, resizing and a deformable attention's sampling are not counted, as in the
published figures. A detector's second stage is counted for the proposals that random weights make of a
random image, as many as the config lets through.
"""
import argparse
import copy
import sys
from pathlib import Path
from typing import Dict, List, Optional, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
from mmengine.config import Config  # noqa: E402
from mmengine.registry import MODELS, init_default_scope  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from cvt_dense.engine.launch import SETUP_ERRORS, report_errors  # noqa: E402
from cvt_dense.models import CvT, ImageClassifier  # noqa: E402


class RandomFeatures(nn.Module):
    """Stands for a backbone whose MACs are known: random outputs of the same shapes."""

    def __init__(self, shapes: List[torch.Size]):
        super().__init__()
        self.shapes = shapes

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        return tuple(torch.rand(shape) for shape in self.shapes)


def count(model: nn.Module, *inputs, **options) -> Tuple[Dict[str, int], object]:
    """MACs by module name ('' is the total), and what the model returned."""
    fastpath = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operator that the counter does not know
    try:
        # The counter knows the matrix products of plain attention, not the CPU's fused kernel.
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH), torch.no_grad():
            out = model(*inputs, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
    root = type(model).__name__
    macs = {name[len(root) + 1:]: sum(operators.values()) // 2
            for name, operators in counter.get_flop_counts().items() if name.startswith(f'{root}.')}
    return {**macs, '': counter.get_total_flops() // 2}, out


def count_parts(model: nn.Module, size: Tuple[int, int], data_sample: Optional[object] = None
                ) -> Dict[str, Tuple[int, int]]:
    """(parameters, MACs) of the backbone's stages and of every other part of a classifier, detector or segmentor.

    The backbone runs on the meta device, so that its size and the image's cost neither time nor memory.
    """
    model = model.eval()
    backbone = model if isinstance(model, CvT) else model.backbone
    image = torch.empty(1, 3, *size, device='meta')
    macs, features = count(copy.deepcopy(backbone).to('meta'), image)
    parts = {f'backbone.{name}': (module, macs.get(name, 0)) for name, module in backbone.named_children()}
    if backbone is not model:
        model.backbone = RandomFeatures([feature.shape for feature in features])
        samples = {} if data_sample is None else dict(data_samples=[data_sample])
        macs, _ = count(model, torch.rand(1, 3, *size), mode='tensor', **samples)
        model.backbone = backbone
        for name, module in model.named_children():
            if name not in ('backbone', 'data_preprocessor'):
                inside = [key for key in macs if key == name or key.startswith(f'{name}.')]
                outermost = [key for key in inside if not any(key.startswith(f'{other}.') for other in inside)]
                parts[name] = (module, sum(macs[key] for key in outermost))
        assert macs[''] == sum(n for name, (_, n) in parts.items() if not name.startswith('backbone.'))
    return {name: (sum(p.numel() for p in module.parameters()), n) for name, (module, n) in parts.items()}


def build(name: str, size: Tuple[int, int]) -> Tuple[nn.Module, Optional[object]]:
    """The network of an arch's name (a classifier of 1000 classes) or of a config, and a sample if it needs one."""
    if name in CvT.arch_zoo:
        return ImageClassifier(dict(type='cvt_dense.CvT', arch=name, out_type='cls_token')), None
    if not Path(name).is_file():
        raise ValueError(f'{name!r} is neither a config file nor one of {", ".join(CvT.arch_zoo)}.')
    cfg = Config.fromfile(name)
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    model = MODELS.build(cfg.model)
    if not isinstance(getattr(model, 'backbone', None), CvT):
        raise ValueError(f'{name}: model.backbone is not a cvt_dense.CvT, whose stages this tool counts.')
    if cfg.get('default_scope') != 'mmdet':
        return model, None
    from mmdet.structures import DetDataSample
    shapes = dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, scale_factor=(1., 1.))
    return model, DetDataSample(metainfo=shapes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('network', help=f'config file, or one of {", ".join(CvT.arch_zoo)}')
    parser.add_argument('--size', type=int, nargs=2, default=(224, 224), metavar=('H', 'W'),
                        help='height and width of the image in pixels (default: 224 224)')
    args = parser.parse_args()
    torch.manual_seed(0)
    with report_errors(*SETUP_ERRORS):
        model, sample = build(args.network, tuple(args.size))
        parts = count_parts(model, tuple(args.size), sample)
    parts['total'] = tuple(map(sum, zip(*parts.values())))
    print(f'{args.network} at {args.size[0]}x{args.size[1]}')
    print(f'{"":<20}{"parameters":>14}{"GMACs":>12}')
    for name, (parameters, macs) in parts.items():
        print(f'{name:<20}{parameters:>14,}{macs / 1e9:>12.3f}')


if __name__ == '__main__':
    main()
