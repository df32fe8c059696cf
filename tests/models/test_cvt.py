"""The backbone's options, outputs, states and errors. Equality with the authors' network: tests/proof."""
import copy
import math
from collections import Counter

import pytest
import torch
from mmengine.config import ConfigDict
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cvt_dense.models import CvT
from cvt_dense.models.layers import QuickGELU
from cvt_dense.registry import MODELS

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])
BatchNorm = nn.modules.batchnorm._BatchNorm


def cvt(**kwargs) -> CvT:
    return CvT(kwargs.pop('arch', ARCH), **kwargs)


def arch(**kwargs):
    return {**ARCH, **kwargs}


def map_sizes(height, width):
    h, w = (height - 3) // 4 + 1, (width - 3) // 4 + 1
    return [(h, w), ((h + 1) // 2, (w + 1) // 2), ((h + 3) // 4, (w + 3) // 4)]


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize('size', [(16, 16), (31, 31), (112, 137), (256, 309), (16, 200)])
@pytest.mark.parametrize('batch', [1, 2])
def test_maps_of_any_size(size, batch):
    outs = cvt().eval()(torch.rand(batch, 3, *size))
    assert isinstance(outs, tuple)
    assert [tuple(y.shape) for y in outs] == [(batch, c, *hw) for c, hw in zip((8, 24, 48), map_sizes(*size))]
    assert all(torch.isfinite(y).all() for y in outs)


def test_images_of_a_batch_do_not_influence_each_other():
    model, x = cvt().eval(), torch.rand(3, 3, 33, 47)
    for together, alone in zip(model(x), zip(*(model(image[None]) for image in x))):
        torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)


def test_mmcv_operators_read_the_maps_right():
    """They take a tensor's memory for NCHW's whatever its strides are."""
    from mmcv.ops import RoIAlign
    model = cvt(out_indices=(0, 1, 2, 3)).eval()
    for out in model(torch.randn(2, 3, 64, 96)):
        box = out.new_tensor([[1, 0, 0, out.shape[3], out.shape[2]]])
        torch.testing.assert_close(
            RoIAlign((out.shape[2], out.shape[3]), sampling_ratio=1)(out, box)[0], out[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last])
def test_memory_layout_and_slices_of_the_image_do_not_matter(layout):
    model, x = cvt().eval(), torch.rand(2, 4, 40, 48)[:, 1:]
    for got, expected in zip(model(x.contiguous(memory_format=layout)), model(x)):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize('device, expected', [('cpu', torch.channels_last), ('meta', torch.contiguous_format)])
def test_layout_of_the_image_is_chosen_by_device(device, expected):
    """Channels-last where that was measured to be faster; all later maps are so without a copy."""
    model, seen = cvt().eval().to(device), []
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model(torch.zeros(2, 3, 40, 48, device=device))
    assert len(seen) == 3 + 3 * 5 and seen[0].is_contiguous(memory_format=expected)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in seen[1:])


def test_out_indices_are_the_same_maps_and_unneeded_stages_are_not_built():
    x = torch.rand(2, 3, 40, 56)
    full = cvt().eval()
    expected = full(x)
    for indices, stages in (([1], [1]), ((0, 2), [0, 2]), ([-1], [2]), ([-3, 1], [0, 1])):
        given = copy.copy(indices)
        model = cvt(out_indices=indices).eval()
        assert indices == given and type(indices) is type(given)
        model.load_state_dict({k: v for k, v in full.state_dict().items() if k in model.state_dict()})
        outs = model(x)
        assert len(outs) == len(stages) and model.out_indices == tuple(stages)
        for out, i in zip(outs, stages):
            torch.testing.assert_close(out, expected[i], rtol=0, atol=0)
        assert [hasattr(model, f'stage{i}') for i in range(3)] == [i <= max(stages) for i in range(3)]
        assert [hasattr(model, f'norm{i}') for i in range(3)] == [i in stages for i in range(3)]
        assert model.out_channels == tuple((8, 24, 48)[i] for i in stages)
        assert model.out_strides == tuple((4, 8, 16)[i] for i in stages)


def test_a_pooled_level_after_the_last():
    model = cvt(out_indices=(0, 1, 2, 3)).eval()
    outs = model(torch.rand(1, 3, 56, 40))
    assert model.out_channels == (8, 24, 48, 48) and model.out_strides == (4, 8, 16, 32)
    assert [y.shape[2:] for y in outs] == [(14, 10), (7, 5), (4, 3), (2, 2)]


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


def test_without_cls_token():
    model = cvt(with_cls_token=False, out_type='avg_featmap')
    assert not [name for name, _ in model.named_parameters() if 'cls_token' in name]
    assert model.eval()(torch.rand(2, 3, 32, 32))[0].shape == (2, 48)


def test_cls_token_in_every_stage():
    model = cvt(arch=arch(cls_token=True), out_type='cls_token').eval()
    names = [name for name, _ in model.named_parameters() if 'cls_token' in name]
    assert names == [f'stage{i}.cls_token' for i in range(3)]
    assert model(torch.rand(2, 3, 33, 32))[0].shape == (2, 48)


def test_other_channels_and_number_of_stages():
    four = dict(embed_dims=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2])
    model = cvt(arch=four, in_channels=5).eval()
    assert [y.shape[1:] for y in model(torch.rand(1, 5, 64, 64))] == [(8, 16, 16), (8, 8, 8), (16, 4, 4), (16, 2, 2)]


# -- architecture ----------------------------------------------------------------------------------


@pytest.mark.parametrize('name, parameters', [('cvt-13', 19_997_480), ('cvt-21', 31_622_696), ('CvT-W24', 277_196_392)])
def test_parameter_counts_are_the_published(name, parameters):
    with torch.device('meta'):
        model = CvT(name, out_type='cls_token')
    head = 1000 * model.out_channels[0] + 1000
    assert sum(p.numel() for p in model.parameters()) + head == parameters


@pytest.mark.parametrize('kernel, padding', [(3, 1), (1, 0), (5, 2)])
def test_projection_kernels(kernel, padding):
    model = cvt(arch=arch(kernel_qkv=kernel, padding_q=padding, padding_kv=padding, stride_kv=1)).eval()
    assert model.stage0.blocks[0].attn.conv_proj_v.conv.weight.shape == (8, 1, kernel, kernel)
    assert model(torch.rand(1, 3, 33, 39))[0].shape == (1, 8, 8, 10)


def test_projection_methods():
    average = cvt(arch=arch(qkv_proj_method='avg')).eval()
    linear = cvt(arch=arch(qkv_proj_method='linear')).eval()
    for model in (average, linear):
        assert not [name for name, _ in model.named_parameters() if 'conv_proj' in name]
        assert model(torch.rand(2, 3, 31, 37))[2].shape == (2, 48, 2, 3)
    pool = average.stage1.blocks[0].attn.conv_proj_k
    assert isinstance(pool, nn.AvgPool2d) and pool.ceil_mode
    assert average.stage1.blocks[0].attn.conv_proj_q is None
    mixed = cvt(arch=arch(qkv_proj_method=['linear', 'avg', 'dw_bn'])).eval()
    assert mixed(torch.rand(1, 3, 32, 32))[2].shape == (1, 48, 2, 2)


def test_qkv_bias_and_mlp_ratios():
    attn = cvt(arch=arch(qkv_bias=False)).stage0.blocks[0].attn
    assert [linear.bias is None for linear in (attn.proj_q, attn.proj_k, attn.proj_v, attn.proj)] == [
        True, True, True, False]
    model = cvt(arch=arch(mlp_ratios=[4, 2, 1.5]))
    assert [model._stage(i).blocks[0].mlp.fc1.out_features for i in range(3)] == [32, 48, 72]


def test_attention_scale_is_of_all_channels():
    attn = cvt().stage2.blocks[0].attn
    assert attn.scale == 48**-0.5 and attn.num_heads == 6


def test_drop_rates():
    model = cvt(drop_rate=.1, attn_drop_rate=[0., .2, .3])
    assert model.stage0.pos_drop.p == model.stage2.blocks[1].attn.proj_drop.p == .1
    assert model.stage1.blocks[0].mlp.drop1.p == .1
    assert [model._stage(i).blocks[0].attn.attn_drop_rate for i in range(3)] == [0., .2, .3]
    x = torch.rand(2, 3, 32, 32)
    assert not torch.equal(model(x)[1], model(x)[1])
    model.eval()
    assert torch.equal(model(x)[1], model(x)[1])


def drop_path_of(model):
    return [[getattr(block.drop_path, 'drop_prob', 0.) for block in model._stage(i).blocks] for i in range(3)]


def test_drop_path_of_every_block():
    deep = arch(depths=[1, 2, 4])
    for kwargs, expected in (
            (dict(arch=deep), [[0], [0, 0], [0, 0, 0, 0]]),
            (dict(arch=arch(depths=[1, 2, 4], drop_path_rates=[0, 0, .3])), [[0], [0, 0], [0, .1, .2, .3]]),
            (dict(arch=deep, drop_path_rate=[.5, .1, .3]), [[0], [0, .1], [0, .1, .2, .3]]),
            (dict(arch=deep, drop_path_rate=.6), [[0], [.1, .2], [.3, .4, .5, .6]])):
        got = drop_path_of(cvt(**kwargs))
        assert [len(g) for g in got] == [len(e) for e in expected]
        assert sum(got, []) == pytest.approx(sum(expected, [])), kwargs
    published = drop_path_of(CvT('cvt-13'))
    assert published[2] == pytest.approx([.1 * i / 9 for i in range(10)]) and published[:2] == [[0], [0, 0]]


def test_initialisation():
    model = cvt(arch=dict(embed_dims=[64, 192, 384], depths=[1, 1, 1], num_heads=[1, 3, 6]), out_type='cls_token')
    model.init_weights()
    model.requires_grad_(False)
    linear = model.stage2.blocks[0].mlp.fc1
    assert linear.weight.std() == pytest.approx(.02, rel=.02) and linear.weight.mean().abs() < 1e-4
    assert not linear.bias.any()
    token = model.stage2.cls_token
    assert token.std() == pytest.approx(.02, rel=.15)
    conv = model.stage2.blocks[0].attn.conv_proj_q.conv.weight
    bound = 1 / math.sqrt(9)  # PyTorch's default: uniform, 9 inputs
    assert .95 * bound < conv.abs().max() <= bound and conv.std() == pytest.approx(bound / math.sqrt(3), rel=.05)
    for module in model.modules():
        if isinstance(module, (nn.LayerNorm, BatchNorm)):
            assert (module.weight == 1).all() and (module.bias == 0).all()


@pytest.mark.parametrize('inplace', [False, True])
def test_quick_gelu(inplace):
    x = torch.linspace(-8, 8, 101, dtype=torch.float64, requires_grad=True)
    expected = x * torch.sigmoid(1.702 * x)
    got = QuickGELU(inplace)(x * 1)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x)[0] for y in (got, expected)))
    given = x.detach().clone()
    torch.testing.assert_close(QuickGELU(inplace)(given), expected.detach())
    assert torch.equal(given, x.detach()) != inplace


def test_other_activation_and_norm():
    model = cvt(act_cfg=dict(type='GELU'), norm_cfg=dict(type='GN', num_groups=2)).eval()
    assert isinstance(model.stage0.blocks[0].mlp.act, nn.GELU)
    assert isinstance(model.stage0.blocks[0].attn.conv_proj_k.bn, nn.GroupNorm)
    assert model(torch.rand(1, 3, 32, 32))[0].shape == (1, 8, 8, 8)
    synchronised = cvt(norm_cfg=dict(type='SyncBN'))
    assert sum(isinstance(m, nn.SyncBatchNorm) for m in synchronised.modules()) == 15


def test_builds_from_a_config_and_leaves_it_alone():
    cfg = ConfigDict(
        type='cvt_dense.CvT', arch=ARCH, out_indices=[0, 1], drop_path_rate=[0., .1, .2], window_size=[4, None, None],
        norm_cfg=dict(type='BN', eps=1e-3), act_cfg=dict(type='cvt_dense.QuickGELU'))
    given = copy.deepcopy(cfg)
    model = MODELS.build(cfg)
    assert cfg == given and isinstance(model, CvT) and model.out_indices == (0, 1)
    assert model.stage0.blocks[0].attn.conv_proj_q.bn.eps == 1e-3
    model = CvT(ConfigDict(ARCH))
    assert model.out_channels == (8, 24, 48)
    zoo = copy.deepcopy(CvT.arch_zoo)
    CvT('cvt-13', drop_path_rate=.3, drop_rate=.1, out_indices=[0])
    assert CvT.arch_zoo == zoo


# -- training states -------------------------------------------------------------------------------


def test_frozen_stages():
    model = cvt(frozen_stages=1, norm_eval=False).train()
    for i in range(3):
        stage = model._stage(i)
        assert all(p.requires_grad == (i == 2) for p in stage.parameters())
        assert all(m.training == (i == 2) for m in stage.modules())
    statistics = model.stage1.blocks[0].attn.conv_proj_q.bn.running_mean.clone()
    sum(y.mean() for y in model(torch.rand(2, 3, 32, 32))).backward()
    assert torch.equal(model.stage1.blocks[0].attn.conv_proj_q.bn.running_mean, statistics)
    assert all((p.grad is None) == name.startswith(('stage0', 'stage1')) for name, p in model.named_parameters())
    unfrozen = cvt(frozen_stages=-1).train()
    assert all(p.requires_grad for p in unfrozen.parameters())
    assert all(m.training for m in unfrozen.modules())


def test_norm_eval():
    model = cvt(norm_eval=True).train()
    norms = [m for m in model.modules() if isinstance(m, BatchNorm)]
    assert len(norms) == 15 and not any(m.training for m in norms)
    assert model.training and model.stage0.training
    before = [m.running_mean.clone() for m in norms]
    model(torch.rand(2, 3, 32, 32))
    assert all(torch.equal(m.running_mean, mean) for m, mean in zip(norms, before))
    assert all(m.training for m in cvt().train().modules())


@pytest.mark.parametrize('kwargs', [
    dict(), dict(out_type='cls_token'), dict(out_type='avg_featmap'), dict(out_indices=(0, 1, 2, 3)),
    dict(window_size=4), dict(with_cls_token=False)], ids=str)
def test_every_parameter_gets_a_gradient(kwargs):
    model = cvt(**kwargs)
    sum((y * torch.rand_like(y)).sum() for y in model(torch.rand(2, 3, 48, 40))).backward()
    assert all(p.grad is not None for p in model.parameters())
    without = {name for name, p in model.named_parameters() if not p.grad.any()}
    # The CLS token's query passes the convolution by, so q's convolution of the last block cannot help it.
    expected = {name for name, _ in model.named_parameters() if name.startswith('stage2.blocks.1.attn.conv_proj_q')}
    assert without == (expected if kwargs.get('out_type') == 'cls_token' else set())


@pytest.mark.parametrize('kwargs', [dict(), dict(window_size=4), dict(norm_eval=True)], ids=str)
def test_checkpointed_equals_plain_and_moves_statistics_once(kwargs):
    x = torch.rand(2, 3, 48, 40)
    results = []
    for with_cp in (False, True):
        torch.manual_seed(1)
        model = cvt(with_cp=with_cp, drop_rate=.1, drop_path_rate=.3, **kwargs).train()
        torch.manual_seed(2)
        image = x.clone().requires_grad_()
        outs = model(image)
        sum((y**2).mean() for y in outs).backward()
        results.append((outs, [image.grad, *(p.grad for p in model.parameters())], list(model.buffers())))
    for plain, checkpointed in zip(*results):
        assert len(plain) == len(checkpointed)
        for a, b in zip(plain, checkpointed):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


class Operations(TorchDispatchMode):
    """Counts the operations that really run."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.counts = getattr(self, 'counts', Counter())
        self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


def test_checkpointing_keeps_less_and_does_not_repeat_attention():
    kept = []
    for with_cp in (False, True):
        sizes = {}

        def pack(tensor):
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        model = cvt(with_cp=with_cp)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            outs = model(torch.rand(2, 3, 128, 128))
        kept.append(sum(sizes.values()))
        with Operations() as operations:
            sum(y.mean() for y in outs).backward()
        counts = operations.counts
        assert counts['_scaled_dot_product_flash_attention_for_cpu_backward'] == 5
        assert counts['_scaled_dot_product_flash_attention_for_cpu'] == 0
        assert counts['native_batch_norm'] == 15 * with_cp
    assert kept[1] < .5 * kept[0]


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_autocast_is_finite_with_large_activations(dtype):
    model = cvt()
    with torch.autocast('cpu', dtype):
        outs = model(torch.randn(2, 3, 64, 64) * 100)
    assert all(torch.isfinite(y).all() for y in outs)
    sum(y.float().mean() for y in outs).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_autocast_is_close_to_float32():
    model, x = cvt().eval(), torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        with torch.autocast('cpu', torch.bfloat16):
            got = model(x)
    for a, b in zip(got, expected):
        assert a.dtype == torch.bfloat16 and (a.float() - b).abs().mean() < .02


def test_float64_stays_float64():
    model, x = cvt().eval(), torch.rand(1, 3, 40, 40)
    single = model(x)
    double = model.double()(x.double())
    for a, b in zip(single, double):
        assert b.dtype == torch.float64
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-5)


def test_layer_depth():
    model = cvt()
    for name, depth in (('stage0.patch_embed.proj.weight', 0), ('stage0.blocks.0.norm1.weight', 1),
                        ('stage1.patch_embed.norm.bias', 2), ('stage1.blocks.0.mlp.fc1.weight', 2),
                        ('stage1.blocks.1.attn.proj_q.bias', 3), ('stage2.cls_token', 4),
                        ('stage2.patch_embed.proj.bias', 4), ('stage2.blocks.1.attn.conv_proj_k.bn.weight', 5),
                        ('norm0.weight', 6), ('norm2.bias', 6)):
        assert model.get_layer_depth(name) == (depth, 7), name
        assert model.get_layer_depth(f'backbone.{name}', 'backbone.') == (depth, 7), name
    assert model.get_layer_depth('head.fc.weight', 'backbone.') == (6, 7)
    layers = {model.get_layer_depth(name)[0] for name, _ in model.named_parameters()}
    assert layers == set(range(7))


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize('kwargs, message', [
    (dict(arch='cvt-14'), "arch='cvt-14' is unknown: allowed are ['cvt-13', 'cvt-21', 'cvt-w24'] or a dict with "
                          'embed_dims, depths, num_heads.'),
    (dict(arch=dict(embed_dims=[8], depths=[1])), "arch={'embed_dims': [8], 'depths': [1]} lacks ['num_heads']: a dict "
                                                  "needs ['embed_dims', 'depths', 'num_heads']."),
    (dict(arch=arch(mlp_ratio=4)), "arch has unknown keys ['mlp_ratio']: allowed are ['embed_dims', 'depths', "
     "'num_heads', 'patch_sizes', 'patch_strides', 'patch_paddings', 'mlp_ratios', 'qkv_bias', 'qkv_proj_method', "
     "'kernel_qkv', 'stride_q', 'padding_q', 'stride_kv', 'padding_kv', 'head_dims', 'cls_token', 'drop_rates', "
     "'attn_drop_rates', 'drop_path_rates']."),
    (dict(arch=arch(depths=[1, 2])), 'arch.depths=[1, 2] has 2 values, but arch has 3 stages: give one value per '
                                     'stage.'),
    (dict(arch=arch(num_heads=[1, 5, 6])), 'arch.embed_dims[1]=24 is not divisible by arch.num_heads[1]=5.'),
    (dict(arch=arch(depths=[1, 0, 2])), 'arch.depths[1]=0: a stage needs at least one block.'),
    (dict(arch=arch(qkv_proj_method='conv')), "arch.qkv_proj_method='conv': allowed are ('dw_bn', 'avg', 'linear')."),
    (dict(arch=arch(stride_q=2)), 'stride_q=2, padding_q=1, kernel_qkv=3 in stage 0: the block adds its input to the '
     'output, so q must keep the size of the map: stride_q 1 and padding_q (kernel_qkv - 1) / 2 with an odd kernel.'),
    (dict(out_type='tokens'), "out_type='tokens': allowed are ('featmap', 'cls_token', 'avg_featmap')."),
    (dict(out_indices=[0, 4]), 'out_indices=(0, 4): allowed are -3 to 3 (3 stages; 3 is a max-pooled level after the '
                               'last).'),
    (dict(out_indices=[1, 0]), 'out_indices=(1, 0) must be ascending and without repeats.'),
    (dict(out_indices=[0], out_type='cls_token'), "out_indices=[0] with out_type='cls_token': only the last stage is "
                                                  'returned; leave out_indices out.'),
    (dict(with_cls_token=False, out_type='cls_token'), "out_type='cls_token' needs a CLS token in the last stage; set "
     "the arch's cls_token or with_cls_token, or use out_type='avg_featmap'."),
    (dict(frozen_stages=3), 'frozen_stages=3: allowed are -1 (freeze nothing) to 2 (freeze stages 0 to 2).'),
    (dict(drop_path_rate=[.1, .2]), 'drop_path_rate=[0.1, 0.2] has 2 values, but arch has 3 stages: give one value '
                                    'per stage.'),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else '')
def test_wrong_options(kwargs, message):
    with pytest.raises(ValueError) as error:
        cvt(**kwargs)
    assert str(error.value) == message


def test_small_image():
    with pytest.raises(ValueError) as error:
        cvt()(torch.rand(2, 3, 15, 40))
    assert str(error.value) == ('image of 15x40 pixels (height x width): CvT needs at least 16x16; resize or pad it '
                                'in the data pipeline.')


def test_one_token_of_one_image_in_training():
    x = torch.rand(1, 3, 16, 16)
    with pytest.raises(ValueError, match='^one image whose map is a single token: .* norm_eval=True'):
        cvt()(x)
    assert len(cvt(norm_eval=True)(x)) == len(cvt().eval()(x)) == len(cvt()(x.expand(2, -1, -1, -1))) == 3
