"""fuse() and compile_backbone(): the same output, nothing left to fold, no way to misuse a fused network."""
import copy

import pytest
import torch
from mmcv.ops import RoIAlign
from torch import nn

from cvt_dense.deploy import attention, linear
from cvt_dense.deploy.fuse import compile_backbone, fuse
from cvt_dense.deploy.roi_align import InferenceRoIAlign
from cvt_dense.errors import UserError
from cvt_dense.models import CvT
from cvt_dense.models.attention import softmax_attention

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)


def trained(**kwargs) -> CvT:
    """A network whose norms have statistics and weights worth folding."""
    model = CvT(kwargs.pop('arch', ARCH), **kwargs).eval()
    for module in model.modules():
        if getattr(module, 'running_mean', None) is not None:
            nn.init.normal_(module.running_mean, std=.3)
            nn.init.uniform_(module.running_var, .3, 3)
        if isinstance(module, (nn.BatchNorm2d, nn.SyncBatchNorm, nn.LayerNorm)):
            nn.init.normal_(module.weight, 1, .3)
            nn.init.normal_(module.bias, std=.3)
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.bias, std=.1)
    return model


@pytest.mark.parametrize('kwargs', [
    dict(), dict(attn_cfg=WINDOWS), dict(out_type='cls_token'), dict(norm_cfg=dict(type='SyncBN')),
    dict(norm_cfg=dict(type='GN', num_groups=4)), dict(act_cfg=dict(type='GELU')), dict(layer_scale_init_value=.3),
    dict(arch=dict(ARCH, qkv_proj_method=['avg', 'linear', 'dw_bn']))], ids=str)
def test_same_output(kwargs):
    model, x = trained(**kwargs), torch.randn(2, 3, 49, 90)
    with torch.no_grad():
        expected = model(x)
        fuse(model)
        got = model(x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
    left = {type(module).__name__ for module in model.modules()}
    assert not left & {'BatchNorm2d', 'SyncBatchNorm', 'LayerScale', 'QuickGELU'}


def test_a_second_time_changes_nothing():
    model = trained()
    fuse(model)
    once = copy.deepcopy(model)
    fuse(model)
    for a, b in zip(model.parameters(), once.parameters(), strict=True):
        assert torch.equal(a, b)


def test_misuse():
    with pytest.raises(RuntimeError, match='eval'):
        fuse(CvT(ARCH))
    with pytest.raises(UserError, match='CvT'):
        fuse(nn.Linear(1, 1))
    detector = nn.Module()
    detector.backbone = trained()
    state_dict = copy.deepcopy(detector.state_dict())
    fuse(detector)
    before = [p.clone() for p in detector.parameters()]
    assert not any(p.requires_grad for p in detector.parameters())
    for strict in (True, False):
        with pytest.raises(RuntimeError, match='fuse'):
            detector.load_state_dict(state_dict, strict=strict)
    assert all(torch.equal(p, old) for p, old in zip(detector.parameters(), before))


def test_heads_have_the_same_output():
    model, x = nn.Module(), torch.rand(2, 3, 49, 90)
    model.backbone = trained()
    model.head = nn.Sequential(nn.Conv2d(48, 16, 3, padding=1), nn.ConvTranspose2d(16, 16, 2, 2), nn.Flatten(2),
                               nn.Linear(72, 5)).eval()
    model.extractor = nn.ModuleList([RoIAlign(3), RoIAlign(3, pool_mode='max')])
    with torch.no_grad():
        expected = model.head(model.backbone(x)[-1])
        fuse(model)
        got = model.head(model.backbone(x)[-1])
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    assert isinstance(model.head[-1], linear.InferenceLinear)
    assert [type(layer) for layer in model.extractor] == [InferenceRoIAlign, RoIAlign]
    assert all(conv.weight.is_contiguous(memory_format=torch.channels_last) for conv in model.head[:2])


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    model, x = trained(), torch.rand(2, 3, 64, 64)
    fuse(model)
    with torch.no_grad():
        expected = model(x)
        with torch.autocast('cpu', dtype):
            autocast = model(x)
        whole = model.to(dtype)(x.to(dtype))
    for outs in (autocast, whole):
        for a, b in zip(outs, expected):
            assert a.dtype == dtype and (a.float() - b).abs().mean() < .03


@pytest.mark.parametrize('faster', [True, False])
@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_both_ways_of_a_linear_layer(monkeypatch, faster, dtype):
    monkeypatch.setattr(linear, 'is_faster', lambda *functions: faster)
    model, x = trained(), torch.rand(2, 3, 49, 90)
    with torch.no_grad():
        expected = model(x)
        fuse(model)
        with torch.autocast('cpu', dtype, enabled=dtype != torch.float32):
            outs = model(x)
        copied = copy.deepcopy(model)(x)
    layers = [module for module in model.modules() if isinstance(module, linear.InferenceLinear)]
    assert len(layers) == 30 and all(bool(layer.packed) == faster or not faster for layer in layers)
    assert set(layers[0].choices.values()) == {faster}
    for a, b, c in zip(outs, expected, copied):
        torch.testing.assert_close(c, b, rtol=0, atol=1e-5)
        assert (a.float() - b).abs().max() < (1e-5 if dtype == torch.float32 else .1)


@pytest.mark.parametrize('block', [2**20, 700, 90, 1])
def test_attention_in_blocks(monkeypatch, block):
    monkeypatch.setattr(attention, 'BLOCK', block)
    q, k, v = torch.randn(2, 37, 24), torch.randn(2, 11, 24), torch.randn(2, 11, 24)
    torch.testing.assert_close(
        attention.attend_in_blocks(q, k, v, 3, .3), softmax_attention(q, k, v, 3, .3), rtol=0, atol=1e-6)


@pytest.mark.parametrize('faster', [True, False])
def test_both_ways_of_attention_in_bfloat16(monkeypatch, faster):
    monkeypatch.setattr(attention, 'is_faster', lambda *functions: faster)
    model, x = trained(attn_cfg=[WINDOWS, None, None]), torch.rand(2, 3, 49, 90)
    with torch.no_grad():
        expected = model(x)
        fuse(model)
        ways = {module.softmax_attention for module in model.modules() if hasattr(module, 'softmax_attention')}
        model(x)
        assert {way.in_blocks for way in ways} == {None}
        with torch.autocast('cpu', torch.bfloat16):
            outs = model(x)
    assert len(ways) == 3 and {way.in_blocks for way in ways} == {faster}
    for a, b in zip(outs, expected):
        assert (a.float() - b).abs().max() < .1


@pytest.mark.parametrize('pack_weight', [lambda weight, rows: None, None], ids=['no operator', 'as it is'])
def test_linear_layer_without_the_operator_and_under_gradients(monkeypatch, pack_weight):
    if pack_weight:
        monkeypatch.setattr(linear, 'pack_weight', pack_weight)
    plain = nn.Linear(8, 5)
    layer, x = linear.InferenceLinear(plain, {}, silu=True), torch.rand(3, 8, requires_grad=True)
    expected = nn.functional.silu(plain(x))
    with torch.no_grad():
        torch.testing.assert_close(layer(x), expected)
    if pack_weight:
        assert not any(layer.choices.values())
    out = layer(x)
    torch.testing.assert_close(out, expected)
    assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (out, expected)))
    exported = torch.export.export(layer.requires_grad_(False), (x.detach(), ))
    assert not any('mkldnn' in str(node.target) for node in exported.graph.nodes)
    torch.testing.assert_close(exported.module()(x.detach()), expected)


def test_compiled_for_images_of_all_sizes():
    """Windows of 4 divide the first map and do not divide the second."""
    torch._dynamo.reset()
    arch = dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3])
    eager = trained(arch=arch, attn_cfg=[WINDOWS, None])  # and a global block with CLS token
    compiled = copy.deepcopy(eager)
    compile_backbone(compiled)
    with torch.no_grad():
        for size in ((1, 3, 64, 80), (1, 3, 49, 90)):
            x = torch.rand(size)
            for a, b in zip(compiled(x), eager(x), strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
                assert not a.requires_grad and a.is_contiguous()
