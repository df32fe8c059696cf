"""The backbone's options, outputs and states. Equality with the authors' network is in tests/proof."""
import copy
import math

import pytest
import torch
from torch import nn

from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])


def cvt(**kwargs) -> CvT:
    return CvT(kwargs.pop('arch', ARCH), **kwargs)


def arch(**kwargs):
    return {**ARCH, **kwargs}


def map_sizes(height, width):
    h, w = (height - 3) // 4 + 1, (width - 3) // 4 + 1
    return [(h, w), ((h + 1) // 2, (w + 1) // 2), ((h + 3) // 4, (w + 3) // 4)]


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('batch, size', [(1, (16, 16)), (2, (31, 31)), (1, (112, 137)), (2, (16, 200))])
def test_maps_of_any_size(batch, size):
    """Contiguous, because mmcv's operators take a tensor's memory for NCHW's; the fourth is pooled from the third."""
    model = cvt(out_indices=(0, 1, 2, 3)).eval()
    outs = model(torch.rand(batch, 3, *size))
    assert isinstance(outs, tuple) and model.out_strides == (4, 8, 16, 32)
    sizes = map_sizes(*size)
    sizes += [tuple((side + 1) // 2 for side in sizes[-1])]
    assert [tuple(y.shape) for y in outs] == [(batch, c, *hw) for c, hw in zip(model.out_channels, sizes)]
    assert model.out_channels == (8, 24, 48, 48) and all(y.is_contiguous() and torch.isfinite(y).all() for y in outs)


@pytest.mark.parametrize('indices, stages', [([1], [1]), ((0, 2), [0, 2]), ([-1], [2]), ([-3, 1], [0, 1])], ids=str)
def test_out_indices_are_the_same_maps_and_unneeded_stages_are_not_built(indices, stages):
    x, full, before = torch.rand(2, 3, 40, 56), cvt().eval(), copy.copy(indices)
    model = cvt(out_indices=indices).eval()
    assert indices == before
    model.load_state_dict({k: v for k, v in full.state_dict().items() if k in model.state_dict()})
    expected = full(x)
    for out, i in zip(model(x), stages, strict=True):
        torch.testing.assert_close(out, expected[i], rtol=0, atol=0)
    assert [hasattr(model, f'stage{i}') for i in range(3)] == [i <= max(stages) for i in range(3)]
    assert [hasattr(model, f'norm{i}') for i in range(3)] == [i in stages for i in range(3)]
    assert model.out_channels == tuple((8, 24, 48)[i] for i in stages)
    assert model.out_strides == tuple((4, 8, 16)[i] for i in stages)


def test_the_pooled_level_is_the_maximum_of_the_last_map():
    model = cvt(out_indices=[2, 3]).eval()
    model.norm2 = model.norm3 = nn.Identity()
    last, pooled = model(torch.rand(2, 3, 80, 56))
    assert torch.equal(pooled, nn.functional.max_pool2d(last, 3, stride=2, padding=1))


def test_out_types():
    x = torch.rand(2, 3, 40, 56)
    token = cvt(out_type='cls_token').eval()
    mean = cvt(out_type='avg_featmap').eval()
    mean.load_state_dict(token.state_dict())
    maps = cvt(out_indices=[2]).eval()
    maps.load_state_dict({k.replace('norm.', 'norm2.') if k.startswith('norm.') else k: v
                          for k, v in token.state_dict().items()})
    assert token(x)[0].shape == (2, 48) and len(token(x)) == 1
    torch.testing.assert_close(mean(x)[0], maps(x)[0].mean(dim=(2, 3)), rtol=0, atol=1e-5)
    assert (token(x)[0] - mean(x)[0]).abs().max() > .1


@pytest.mark.parametrize('in_arch, with_cls_token, expected', [
    (None, None, [2]), (None, True, [2]), (None, False, []), (False, True, [2]), (False, None, []),
    (True, None, [0, 1, 2]), (True, False, []), ([True, False, False], True, [0, 2])])
def test_cls_token_of_each_stage(in_arch, with_cls_token, expected):
    edited = ARCH if in_arch is None else arch(cls_token=in_arch)
    model = cvt(arch=edited, with_cls_token=with_cls_token, out_type='cls_token' if 2 in expected else 'avg_featmap')
    assert [name for name, _ in model.named_parameters() if 'cls_token' in name] == [
        f'stage{i}.cls_token' for i in expected]
    assert model.eval()(torch.rand(2, 3, 33, 32))[0].shape == (2, 48)


# -- architecture ----------------------------------------------------------------------------------


def test_projection_methods_biases_and_ratios_of_each_stage():
    model = cvt(arch=arch(qkv_proj_method=['linear', 'avg', 'dw_bn'], qkv_bias=False, mlp_ratios=[4, 2, 1.5])).eval()
    with_convolution = {name[:6] for name, _ in model.named_parameters() if 'conv_proj' in name}
    assert with_convolution == {'stage2'} and model(torch.rand(1, 3, 32, 32))[2].shape == (1, 48, 2, 2)
    assert {name.rpartition('.')[0][-6:] for name, _ in model.named_parameters() if '.proj' in name
            and name.endswith('bias') and 'attn' in name} == {'n.proj'}
    assert [stage.blocks[0].mlp.fc1.out_features for stage in model.stages] == [32, 48, 72]


def test_drop_rates():
    model = cvt(drop_rate=.1, attn_drop_rate=[0., .2, .3])
    assert model.stage0.pos_drop.p == model.stage2.blocks[1].attn.proj_drop.p == .1
    assert model.stage1.blocks[0].mlp.drop1.p == .1
    assert [stage.blocks[0].attn.attn_drop_rate for stage in model.stages] == [0., .2, .3]
    model, x = cvt(attn_drop_rate=.5, norm_eval=True), torch.rand(2, 3, 32, 32)
    assert not torch.equal(model(x)[2], model(x)[2]) and torch.equal(model.eval()(x)[2], model(x)[2])


@pytest.mark.parametrize('kwargs, expected', [
    (dict(), [[0], [0, 0], [0, 0, 0, 0]]),
    (dict(arch=arch(depths=[1, 2, 4], drop_path_rates=[0, 0, .3])), [[0], [0, 0], [0, .1, .2, .3]]),
    (dict(drop_path_rate=[.5, .1, .3]), [[0], [0, .1], [0, .1, .2, .3]]),
    (dict(drop_path_rate=.6), [[0], [.1, .2], [.3, .4, .5, .6]])], ids=str)
def test_drop_path_of_every_block(kwargs, expected):
    model = cvt(**dict(dict(arch=arch(depths=[1, 2, 4])), **kwargs))
    got = [[getattr(block.drop_path, 'drop_prob', 0.) for block in stage.blocks] for stage in model.stages]
    assert [len(g) for g in got] == [len(e) for e in expected] and sum(got, []) == pytest.approx(sum(expected, []))


def test_initialisation():
    model = cvt(arch=dict(embed_dims=[64, 192, 384], depths=[1, 1, 1], num_heads=[1, 3, 6]), out_type='cls_token')
    model.init_weights()
    model.requires_grad_(False)
    linear = model.stage2.blocks[0].mlp.fc1
    assert linear.weight.std() == pytest.approx(.02, rel=.02) and linear.weight.mean().abs() < 1e-4
    assert not linear.bias.any() and model.stage2.cls_token.std() == pytest.approx(.02, rel=.15)
    conv = model.stage2.blocks[0].attn.conv_proj_q.conv.weight
    bound = 1 / math.sqrt(9)  # PyTorch's default: uniform, 9 inputs
    assert .95 * bound < conv.abs().max() <= bound and conv.std() == pytest.approx(bound / math.sqrt(3), rel=.05)
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, nn.BatchNorm2d)):
            assert (module.weight == 1).all() and (module.bias == 0).all()


# -- training states -------------------------------------------------------------------------------


def test_frozen_stages():
    model = cvt(frozen_stages=1).train()
    for i, stage in enumerate(model.stages):
        assert all(p.requires_grad == (i == 2) for p in stage.parameters())
        assert all(m.training == (i == 2) for m in stage.modules())
    statistics = model.stage1.blocks[0].attn.conv_proj_q.bn.running_mean.clone()
    sum(y.mean() for y in model(torch.rand(2, 3, 32, 32))).backward()
    assert torch.equal(model.stage1.blocks[0].attn.conv_proj_q.bn.running_mean, statistics)
    assert all((p.grad is None) == name.startswith(('stage0', 'stage1')) for name, p in model.named_parameters())


def test_norm_eval():
    model = cvt(norm_eval=True).train()
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(norms) == 15 and not any(m.training for m in norms) and model.training and model.stage0.training


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize('kwargs, setting', [
    (dict(arch='cvt-14'), 'cvt-14'), (dict(arch=dict(embed_dims=[8], depths=[1])), 'num_heads'),
    (dict(arch=arch(mlp_ratio=4)), 'mlp_ratio'), (dict(arch=arch(depths=[1, 2])), 'depths'),
    (dict(arch=arch(num_heads=[1, 5, 6])), 'num_heads=5'), (dict(arch=arch(qkv_proj_method='conv')), 'qkv_proj_method'),
    (dict(arch=arch(kernel_qkv=4)), 'kernel_qkv=4'), (dict(out_type='tokens'), 'out_type'),
    (dict(out_indices=[0, 4]), 'out_indices'), (dict(out_indices=[1, 0]), 'out_indices'),
    (dict(out_indices=[0], out_type='cls_token'), 'out_indices'),
    (dict(with_cls_token=False, out_type='cls_token'), 'with_cls_token'), (dict(frozen_stages=3), 'frozen_stages'),
    (dict(drop_path_rate=[.1, .2]), 'drop_path_rates')], ids=str)
def test_wrong_options_are_named(kwargs, setting):
    with pytest.raises((ValueError, TypeError), match=setting):
        cvt(**kwargs)


def test_images_that_are_too_small():
    for height, width in ((15, 40), (40, 15)):
        with pytest.raises(ValueError, match=f'{height}x{width}'):
            cvt()(torch.rand(2, 3, height, width))
    x = torch.rand(1, 3, 16, 16)  # in training, BatchNorm's statistics need two images of this size
    assert len(cvt(norm_eval=True)(x)) == len(cvt().eval()(x)) == len(cvt()(x.expand(2, -1, -1, -1))) == 3


def test_drop_path_is_on_both_branches():
    """An image whose paths are dropped leaves a block as it came."""
    model = CvT(dict(embed_dims=[8], depths=[2], num_heads=[1]), drop_path_rate=torch.tensor(.5).numpy()[()])
    block = model.stage0.blocks[1]
    block.drop_path.drop_prob = 1 - 1e-9
    x = torch.rand(3, 16, 8)
    torch.testing.assert_close(block.train()(x, (4, 4)), x, rtol=0, atol=0)
    assert not torch.equal(block.eval()(x, (4, 4)), x)
