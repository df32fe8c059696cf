"""Equality with an independent implementation: transformers' Cvt, which has the exact GELU built in."""
import pytest
import torch

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert, huggingface_config

transformers = pytest.importorskip('transformers')
GELU = dict(type='GELU')


def build_ours(arch, act_cfg=GELU, num_classes=11):
    return ImageClassifier(
        dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token', act_cfg=act_cfg), num_classes=num_classes)


def randomise(model):
    """Weights such that no norm, bias or stored statistic is at its neutral value."""
    for name, value in model.state_dict().items():
        if name.endswith('running_var'):
            value.uniform_(0.5, 1.5)
        elif value.is_floating_point():
            value.normal_(std=0.02 if value.dim() > 1 else 0.1)
            if name.endswith('weight') and value.dim() == 1:
                value.add_(1)
        else:
            value.fill_(7)
    return model


def build_theirs(state_dict, arch):
    """Return transformers' network with given weights, all of which it must accept."""
    config = transformers.CvtConfig(**huggingface_config(state_dict, CvT.arch_zoo[arch]['num_heads']))
    with torch.device('meta'):
        model = transformers.CvtForImageClassification(config)
    model.load_state_dict(convert(state_dict, 'huggingface'), strict=True, assign=True)
    return model


@pytest.mark.parametrize('arch, size', [('cvt-13', (224, 224)), ('cvt-21', (113, 158)), ('cvt-w24', (64, 64))])
def test_logits_are_those_of_transformers(arch, size, max_differences):
    with torch.device('meta'):
        ours = build_ours(arch)
    ours = randomise(ours.to_empty(device='cpu')).eval()
    theirs = build_theirs(ours.state_dict(), arch).eval()
    x = torch.randn(1, 3, *size)
    with torch.no_grad():
        expected = theirs(x).logits
        max_differences.check(f'transformers, {arch}, {size[0]}x{size[1]}, logits', ours(x), expected, 1e-5)
        if size == (224, 224):
            quick = build_ours(arch, dict(type='cvt_dense.QuickGELU')).eval()
            quick.load_strictly(ours.state_dict(), 'the same weights')
            name = f'transformers (GELU) against QuickGELU, {arch}, logits'
            assert max_differences.check(name, quick(x), expected, None) > 1e-3
