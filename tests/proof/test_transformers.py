"""Equality with an independent implementation: transformers' Cvt, which has the exact GELU built in."""
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from random_weights import randomise

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert, huggingface_config

transformers = pytest.importorskip('transformers')
# transformers takes drop path rates by stage, so stage i needs more than i blocks.
TINY = dict(embed_dims=(8, 24, 48), depths=(1, 2, 3), num_heads=(1, 3, 6))
GELU = dict(type='GELU')
assert_close = partial(torch.testing.assert_close, rtol=0, atol=1e-5)


def build_ours(arch, act_cfg=GELU, num_classes=11):
    return ImageClassifier(
        dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token', act_cfg=act_cfg), num_classes=num_classes)


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
def test_logits_are_those_of_transformers(arch, size):
    with torch.device('meta'):
        ours = build_ours(arch)
    ours = randomise(ours.to_empty(device='cpu'))
    theirs = build_theirs(ours.state_dict(), arch).eval()
    x = torch.randn(1, 3, *size)
    with torch.no_grad():
        expected = theirs(x).logits
        assert_close(ours(x), expected)
        if size == (224, 224):
            quick = build_ours(arch, dict(type='cvt_dense.QuickGELU')).eval()
            quick.load_strictly(ours.state_dict(), 'the same weights')
            assert (quick(x) - expected).abs().max() > 1e-3  # transformers has the exact GELU


def test_training_step_is_that_of_transformers():
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
    assert_close(logits, expected.logits)
    for name, parameter in convert(dict(theirs.named_parameters()), 'cvt_dense').items():
        assert_close(ours.get_parameter(name).grad, parameter.grad)
    buffers = convert(dict(theirs.state_dict()), 'cvt_dense')
    for name, value in ours.named_buffers():
        if name in buffers:
            assert_close(value, buffers[name])
