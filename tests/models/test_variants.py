"""CvT's options that are off by default: neutral at the start, learned, fused, exported, strict about weights."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from cvt_dense.errors import CheckpointError
from cvt_dense.models import CvT
from cvt_dense.models.layers import ConvAttention, position
from cvt_dense.models.layers.linear_attention import FocusedLinearAttention

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 1], num_heads=[1, 3, 6])
FOUR_STAGES = dict(embed_dims=[8, 8, 16, 16], depths=[1, 1, 1, 1], num_heads=[1, 2, 2, 4])
NEUTRAL = dict(
    layer_scale=dict(layer_scale_init_value=1.), hybrid=dict(mixing='hybrid'), pos_embed=dict(pos_embed=[4, None, 3]),
    cpb=dict(rel_pos='cpb'), rope=dict(rel_pos='rope'),
    windows=dict(rel_pos=['rope', 'cpb', 'cpb'], window_size=[4, 4, None]),
    together=dict(layer_scale_init_value=1., mixing='hybrid', pos_embed=5, rel_pos=['rope', 'rope', 'cpb']))
LINEAR = dict(attention=['linear', 'linear', 'softmax'])
OPTIONS = dict(NEUTRAL, linear=LINEAR, linear_rope=dict(LINEAR, rel_pos='rope'))
SIZES = [(64, 64), (49, 90)]


def moved(model: CvT) -> CvT:
    """The network with every parameter and statistic somewhere else than at its start."""
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            nn.init.uniform_(value, 0.5, 1.5) if name.endswith(('gamma', 'running_var')) else value.add_(
                0.1 * torch.randn_like(value))
    return model


def plain_and_variant(options: dict) -> tuple[CvT, CvT]:
    windows = {key: value for key, value in options.items() if key == 'window_size'}
    plain, model = moved(CvT(ARCH, **windows)).eval(), CvT(ARCH, **options).eval()
    model.load_state_dict(plain.state_dict(), strict=False)
    return plain, model


@pytest.mark.parametrize('options', NEUTRAL.values(), ids=NEUTRAL)
@pytest.mark.parametrize('size', SIZES, ids=str)
def test_neutral_at_the_start(options, size):
    plain, model = plain_and_variant(options)
    assert set(model.state_dict()) > set(plain.state_dict())
    with torch.no_grad():
        x = torch.rand(2, 3, *size)
        for a, b in zip(model(x), plain(x)):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_learned_at_odd_sizes_and_fused(options):
    """Gradients reach every parameter; recomputed in the backward pass they are the same; fused equals plain."""
    model = moved(CvT(ARCH, **options, out_type='cls_token'))
    again = copy.deepcopy(model)
    for i in range(3):
        getattr(again, f'stage{i}').with_cp = True
    x = torch.rand(2, 3, 49, 90)
    for network in (model, again):
        network(x)[0].square().sum().backward()
    own = dict(again.named_parameters())
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(own[name].grad, parameter.grad, rtol=0, atol=1e-4)
    new = [parameter for name, parameter in model.named_parameters() if not name.startswith('stage2')
           and name not in dict(CvT(ARCH, out_type='cls_token').named_parameters())]
    assert all(parameter.grad.abs().sum() > 0 for parameter in new)
    with torch.no_grad():
        expected = model.eval()(x)[0]
        torch.testing.assert_close(model.fuse()(x)[0], expected, rtol=0, atol=1e-5)
    left = {type(module).__name__ for module in model.modules()}
    assert not left & {'LayerScale', 'BatchNorm2d'}


@pytest.fixture
def process_group():
    torch.distributed.init_process_group('gloo', store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_ddp_without_unused_parameters(options, process_group):
    """It raises at the second step if one had no gradient in the first."""
    model = nn.parallel.DistributedDataParallel(CvT(ARCH, **options))
    for _ in range(2):
        sum(y.square().mean() for y in model(torch.rand(2, 3, 49, 90))).backward()


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_one_graph(options):
    """What is traced for ``torch.compile`` has no break, in training and in testing."""
    torch._dynamo.reset()  # what was compiled for the other options counts towards its limit
    model = moved(CvT(ARCH, **options))
    x = torch.rand(2, 3, 49, 90)
    for mode in (True, False):
        model.train(mode)
        torch.manual_seed(1)
        expected = model(x)
        torch.manual_seed(1)
        for a, b in zip(torch.compile(model, fullgraph=True, backend='eager')(x), expected):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('options', [
    NEUTRAL['together'] | dict(rel_pos='cpb'), dict(attention='linear', rel_pos='rope')], ids=['neutral', 'linear'])
def test_four_stages(options):
    model = CvT(FOUR_STAGES, **options)
    assert [tuple(out.shape[1:]) for out in model(torch.rand(2, 3, 65, 96))] == [
        (8, 16, 24), (8, 8, 12), (16, 4, 6), (16, 2, 3)]


# -- each against its definition -----------------------------------------------------------------------


def test_bias_is_a_function_of_distances(monkeypatch):
    """Against all scores at once, for strided keys, with and without CLS, and cut into bands of rows."""
    bias = position.RelPosBias(3, stride=2)
    nn.init.normal_(bias.weight)
    h, w, hk, wk = 5, 7, 3, 4
    places = torch.cartesian_prod(torch.arange(h), torch.arange(w))
    keys = 2 * torch.cartesian_prod(torch.arange(hk), torch.arange(wk))
    distances = (places[:, None] - keys).float()
    scores = F.relu(bias.fc(distances.sign() * (1 + distances.abs()).log())) @ bias.weight.T
    scores = F.pad(scores.permute(2, 0, 1), (1, 0, 1, 0))  # CLS: no bias
    q, k, v = torch.randn(2, 3, 1 + h * w, 4), torch.randn(2, 3, 1 + hk * wk, 4), torch.randn(2, 3, 1 + hk * wk, 4)
    expected = ((q @ k.transpose(2, 3) * 0.3) + scores).softmax(-1) @ v
    gradient, = torch.autograd.grad(expected.square().sum(), bias.weight, retain_graph=True)
    for limit in (2**22, 3 * w * hk * wk * 2, 1):  # all rows, two, one
        monkeypatch.setattr(position, 'MAX_SCORES', limit)
        got = bias(q, k, v, (h, w), 0., 0.3)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
        again, = torch.autograd.grad(got.square().sum(), bias.weight)
        torch.testing.assert_close(again, gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('rel_pos', ['cpb', 'rope'])
def test_no_tensor_of_queries_by_keys(rel_pos, monkeypatch):
    """In the forward and backward pass of a map that is large for MAX_SCORES, as stage 0's at 800x1344 is."""
    largest = 0

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **kwargs or {})
            for tensor in out if isinstance(out, (tuple, list)) else [out]:
                largest = max(largest, tensor.numel() if isinstance(tensor, torch.Tensor) else 0)
            return out

    monkeypatch.setattr(position, 'MAX_SCORES', 2**18)
    attn = ConvAttention(8, 2, rel_pos=rel_pos)
    with Largest():
        attn(torch.randn(1, 1 + 80 * 80, 8), (80, 80)).sum().backward()
    queries, keys = 80 * 80, 40 * 40  # and 158 * 158 distances by 128 hidden channels
    assert 0 < largest < queries * keys / 3 and attn.rel_pos is not None


@pytest.mark.parametrize('stride', [1, 2])
def test_turned_scores_depend_on_distances_only(stride):
    """The scores of a map are those of a larger one's lower right part, whatever stands to its left."""
    rope = position.RotaryPositions(2, 6, stride)
    nn.init.normal_(rope.freqs)
    q, k = torch.randn(1, 12), torch.randn(1, 12)

    def score(hw_shape, query, key):  # of the same vectors at two places, in tokens of the map and of the keys
        hw_kv = tuple(-(-side // stride) for side in hw_shape)
        queries, keys = rope(q.expand(1, hw_shape[0] * hw_shape[1], 12), k.expand(1, hw_kv[0] * hw_kv[1], 12), hw_shape)
        return queries[0, query[0] * hw_shape[1] + query[1]] @ keys[0, key[0] * hw_kv[1] + key[1]]

    near = score((6, 8), (0, 1), (1, 2))
    torch.testing.assert_close(score((12, 20), (4, 9), (1 + 4 // stride, 2 + 8 // stride)), near)
    assert not torch.allclose(score((6, 8), (0, 1), (0, 2)), near)


def test_linear_attention_is_its_sum_over_keys():
    attn = FocusedLinearAttention(12, 3)
    nn.init.zeros_(attn.dwc.weight), nn.init.zeros_(attn.dwc.bias)
    q, k, v = torch.randn(2, 1 + 20, 12), torch.randn(2, 1 + 6, 12), torch.randn(2, 1 + 6, 12)
    focused = [(F.relu(x / F.softplus(attn.temperature)) + 1e-6) for x in (q, k)]
    focused = [(x**3 / (x**3).norm(dim=-1, keepdim=True) * x.norm(dim=-1, keepdim=True)).unflatten(2, (3, 4))
               for x in focused]
    weights = torch.einsum('bqhc,bkhc->bhqk', *focused)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-6)
    expected = torch.einsum('bhqk,bkhc->bqhc', weights, v.unflatten(2, (3, 4))).flatten(2)
    torch.testing.assert_close(attn(q, k, v, (4, 5), (2, 3)), expected, rtol=0, atol=1e-5)
    nn.init.ones_(attn.dwc.weight)
    local = attn(q, k, v, (4, 5), (2, 3)) - expected  # of the corner: nine neighbours of v at the queries' resolution
    large = F.interpolate(v[:, 1:].unflatten(1, (2, 3)).permute(0, 3, 1, 2), (4, 5))
    torch.testing.assert_close(local[:, 1], large[:, :, :3, :3].sum((2, 3)), rtol=0, atol=1e-4)
    torch.testing.assert_close(local[:, 0], torch.zeros(2, 12), rtol=0, atol=1e-5)


def test_positional_embedding_is_resized():
    model = CvT(ARCH, pos_embed=[4, None, None], out_indices=(0, )).eval()
    outs = []
    with torch.no_grad():
        for value in (0., 1.):
            nn.init.constant_(model.stage0.pos_embed, value)
            tokens, _, hw_shape = model.stage0(torch.ones(1, 3, 32, 64))
            outs.append(tokens)
    assert hw_shape == (8, 16) and not torch.allclose(*outs)


# -- training and weights ------------------------------------------------------------------------------


def test_what_does_not_decay():
    model = CvT(ARCH, **OPTIONS['together'], attention=['linear', 'softmax', 'softmax'])
    free = model.no_weight_decay()
    assert {'stage1.pos_embed', 'stage2.cls_token', 'stage0.blocks.0.attn.rel_pos.freqs',
            'stage2.blocks.0.attn.rel_pos.fc.weight', 'stage2.blocks.0.attn.rel_pos.weight'} <= free
    assert not any('conv_proj' in name or 'mlp' in name or '.proj' in name for name in free)
    one_dimensional = {name for name, parameter in model.named_parameters() if parameter.ndim == 1}
    assert 'stage0.blocks.0.ls1.gamma' in one_dimensional
    assert 'stage0.blocks.0.attn.linear_attention.temperature' in one_dimensional
    assert model.get_layer_depth('stage0.pos_embed') == (0, 6) and model.get_layer_depth('stage1.pos_embed') == (2, 6)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_published_weights_load_and_the_new_is_listed(options, tmp_path):
    plain = CvT(ARCH)
    torch.save(plain.state_dict(), tmp_path / 'plain.pth')
    model = CvT(ARCH, **options, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'plain.pth')))
    result = model.check_loading(plain.state_dict(), 'the file')
    assert set(result.new) == set(model.state_dict()) - set(plain.state_dict()) and result.new
    model.init_weights()
    assert torch.equal(model.stage1.blocks[0].attn.proj_q.weight, plain.stage1.blocks[0].attn.proj_q.weight)
    with pytest.raises(CheckpointError, match='other options of the backbone; set layer_scale_init_value, mixing'):
        plain.check_loading(model.state_dict(), 'the file')


def test_small_layer_scale_needs_its_own_weights():
    with pytest.raises(CheckpointError, match='without LayerScale, .* set layer_scale_init_value=1'):
        CvT(ARCH, layer_scale_init_value=1e-6).check_loading(CvT(ARCH).state_dict(), 'the file')


@pytest.mark.parametrize('options', [OPTIONS['together'], OPTIONS['linear']], ids=['together', 'linear'])
def test_onnx_equals_eager(options, tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    arch = dict(embed_dims=[8, 16, 16], depths=[1, 1, 1], num_heads=[1, 2, 2])
    model, x = moved(CvT(arch, **options)).eval(), torch.rand(1, 3, 49, 64)
    with torch.no_grad():
        expected = model.fuse()(x)
        torch.onnx.export(model, (x, ), tmp_path / 'cvt.onnx', dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'cvt.onnx')
    for a, b in zip(session.run(None, {session.get_inputs()[0].name: x.numpy()}), expected):
        torch.testing.assert_close(torch.from_numpy(a), b, rtol=0, atol=1e-4)


@pytest.mark.parametrize('options, message', [
    (dict(mixing='both'), "mixing='both' in stage 0: allowed are None, 'hybrid', one for all"),
    (dict(attention=['linear', 'flash', 'softmax']), "attention='flash' in stage 1: allowed are 'softmax', 'linear'"),
    (dict(rel_pos=True), "rel_pos=True in stage 0: allowed are None, 'cpb', 'rope'"),
    (dict(rel_pos=['cpb']), r"rel_pos=\['cpb'\] has 1 values, but arch has 3 stages"),
    (dict(layer_scale_init_value=0), 'layer_scale_init_value=0 in stage 0: must be a number above 0'),
    (dict(pos_embed='learned'), "pos_embed='learned' in stage 0: must be the side of the learned grid"),
    (dict(arch=dict(ARCH, qkv_proj_method='avg'), rel_pos='cpb'), 'both need a k/v map that is exactly stride_kv'),
    (dict(arch=dict(ARCH, qkv_proj_method='linear'), mixing='hybrid'), "needs qkv_proj_method='dw_bn'"),
    (dict(arch=dict(ARCH, embed_dims=[9, 24, 48]), rel_pos='rope'), 'embed_dims=9 over num_heads=1 must be even'),
    (dict(attention='linear', window_size=4), "window_size=4 with attention='linear' in stage 0"),
    (dict(attention='linear', rel_pos='cpb'), "rel_pos='cpb' with attention='linear' in stage 0"),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        CvT(**dict(dict(arch=ARCH), **options))
