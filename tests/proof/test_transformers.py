"""Equality with an independent implementation: transformers' Cvt, which has the exact GELU built in."""
import pytest
import torch
import torch.nn.functional as F

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert, huggingface_config

transformers = pytest.importorskip('transformers')
# transformers takes drop path rates by stage, so stage i needs more than i blocks.
TINY = dict(embed_dims=(8, 24, 48), depths=(1, 2, 3), num_heads=(1, 3, 6))
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
    arch = CvT.arch_zoo[arch] if isinstance(arch, str) else arch
    config = transformers.CvtConfig(**huggingface_config(state_dict, arch['num_heads']))
    with torch.device('meta'):
        model = transformers.CvtForImageClassification(config)
    model.load_state_dict(convert(state_dict, 'huggingface'), strict=True, assign=True)
    return model


@pytest.mark.parametrize('arch, size', [('cvt-13', (224, 224)), ('cvt-13', (113, 158)), ('cvt-21', (96, 160)),
                                        ('cvt-w24', (64, 64))])
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


def test_training_step_is_that_of_transformers(max_differences):
    ours = randomise(build_ours(TINY))
    # Without drop path, which transformers applies to the residual too.
    theirs = build_theirs({key: value.clone() for key, value in ours.state_dict().items()}, TINY)
    ours.train()
    theirs.train()
    x, labels = torch.randn(4, 3, 64, 64), torch.tensor([0, 3, 7, 10])
    logits = ours(x)
    F.cross_entropy(logits, labels).backward()
    expected = theirs(x, labels=labels)
    expected.loss.backward()
    max_differences.check('transformers, training, logits', logits, expected.logits, 1e-5)
    names = convert({name: parameter for name, parameter in theirs.named_parameters()}, 'cvt_dense')
    worst = max(names, key=lambda n: (names[n].grad - ours.get_parameter(n).grad).abs().max())
    max_differences.check(f'transformers, training, worst gradient ({worst})', ours.get_parameter(worst).grad,
                          names[worst].grad, 1e-5)
    buffers = convert(dict(theirs.state_dict()), 'cvt_dense')
    for name, value in ours.named_buffers():
        if name in buffers:
            torch.testing.assert_close(value, buffers[name], rtol=0, atol=1e-5)
