"""fuse(): the same output, and no way to misuse a fused network."""
import pytest
import torch
from random_weights import randomise
from torch import nn

from cvt_dense.deploy.fuse import fuse
from cvt_dense.errors import UserError
from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)


def trained(arch: dict = ARCH, **kwargs) -> CvT:
    return randomise(CvT(arch, **kwargs))


@pytest.mark.parametrize('kwargs', [
    dict(), dict(attn_cfg=WINDOWS), dict(out_type='cls_token'), dict(norm_cfg=dict(type='SyncBN')),
    dict(norm_cfg=dict(type='GN', num_groups=4)), dict(act_cfg=dict(type='GELU')),
    dict(layer_scale_init_value=.3, pos_embed=[4, None, 3]),
    dict(arch=dict(ARCH, qkv_proj_method=['avg', 'linear', 'dw_bn']))], ids=str)
def test_same_output(kwargs):
    model, x = trained(**kwargs), torch.randn(2, 3, 49, 90)
    with torch.no_grad():
        expected = model(x)
        fuse(model)
        got = model(x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    assert not {type(m).__name__ for m in model.modules()} & {'BatchNorm2d', 'SyncBatchNorm', 'LayerScale', 'QuickGELU'}


def test_a_fused_network_neither_trains_nor_loads():
    with pytest.raises(RuntimeError, match='eval'):
        fuse(CvT(ARCH))
    with pytest.raises(UserError, match='CvT'):
        fuse(nn.Linear(1, 1))
    detector = nn.ModuleDict(dict(backbone=trained()))
    fuse(detector)
    assert not any(p.requires_grad for p in detector.parameters())
    for strict in (True, False):
        with pytest.raises(RuntimeError, match='fuse'):
            detector.load_state_dict({}, strict=strict)
    with pytest.raises(RuntimeError, match='fused'):
        detector.train()['backbone'](torch.rand(1, 3, 32, 32))


def test_layers_whose_weights_are_computed_are_refused():
    model = trained()
    nn.utils.parametrizations.weight_norm(model.stage0.blocks[0].mlp.fc1)
    before = str(model)
    with pytest.raises(UserError, match='stage0.blocks.0.mlp.fc1'):
        fuse(model)
    assert str(model) == before  # a refusal changes nothing
