"""Equality with an independent implementation: transformers' Cvt, which has the exact GELU built in."""
import pytest
import torch
from random_weights import randomise

from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert

transformers = pytest.importorskip('transformers')


def build(arch: str, activation: str) -> ImageClassifier:
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=arch, out_type='cls_token', act_cfg=dict(type=activation)))


@pytest.mark.slow
def test_logits_are_those_of_transformers():
    arch = 'cvt-13'
    with torch.device('meta'):
        ours = build(arch, 'GELU')
    ours = randomise(ours.to_empty(device='cpu'))
    embed_dim, depth, heads = (CvT.arch_zoo[arch][key] for key in ('embed_dims', 'depths', 'num_heads'))
    config = transformers.CvtConfig(embed_dim=embed_dim, depth=depth, num_heads=heads, num_labels=1000)
    with torch.device('meta'):
        theirs = transformers.CvtForImageClassification(config).eval()
    theirs.load_state_dict(convert(ours.state_dict(), 'huggingface'), strict=True, assign=True)
    x = torch.randn(1, 3, 113, 158)
    with torch.no_grad():
        expected = theirs(x).logits
        torch.testing.assert_close(ours(x), expected, rtol=0, atol=1e-5)
        quick = build(arch, 'cvt_dense.QuickGELU').eval()
        quick.load_state_dict(ours.state_dict())
        assert (quick(x) - expected).abs().max() > 1e-3
