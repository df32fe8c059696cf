"""CvT.fuse(): same output, nothing left to fold, no way to misuse it."""
import copy

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 2], num_heads=[1, 3, 6])


def trained(**kwargs) -> CvT:
    """A network whose norms have statistics and weights worth folding."""
    model = CvT(kwargs.pop('arch', ARCH), **kwargs).eval()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.normal_(module.running_mean, std=.3)
            nn.init.uniform_(module.running_var, .3, 3)
        if isinstance(module, (nn.modules.batchnorm._BatchNorm, nn.LayerNorm)):
            nn.init.normal_(module.weight, 1, .3)
            nn.init.normal_(module.bias, std=.3)
    return model


@pytest.mark.parametrize('kwargs', [
    dict(), dict(window_size=4), dict(out_type='cls_token'), dict(norm_cfg=dict(type='SyncBN')),
    dict(norm_cfg=dict(type='GN', num_groups=4)), dict(act_cfg=dict(type='GELU')), dict(drop_rate=.1),
    dict(arch=dict(ARCH, qkv_proj_method='avg')), dict(arch=dict(ARCH, qkv_proj_method='linear'))], ids=str)
@pytest.mark.parametrize('size', [(64, 64), (49, 90)], ids=str)
def test_same_output(kwargs, size):
    model, x = trained(**kwargs), torch.randn(2, 3, *size)
    with torch.no_grad():
        expected = model(x)
        assert model.fuse() is model
        got = model(x)
    for a, b in zip(got, expected):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_batch_norm_and_quick_gelu_are_gone():
    model = trained().fuse()
    kinds = {type(module) for module in model.modules()}
    assert not any(issubclass(kind, nn.modules.batchnorm._BatchNorm) for kind in kinds)
    assert nn.SiLU in kinds and 'QuickGELU' not in {kind.__name__ for kind in kinds}
    once = copy.deepcopy(model)
    for a, b in zip(model.fuse().parameters(), once.parameters()):  # a second time changes nothing
        assert torch.equal(a, b)


def test_refuses_training_and_checkpoints():
    model = CvT(ARCH)
    state_dict = copy.deepcopy(model.state_dict())
    with pytest.raises(RuntimeError, match=r'call eval\(\) first'):
        model.fuse()
    model.eval().fuse()
    assert not model.eval().training
    with pytest.raises(RuntimeError, match='^this CvT was fused for inference and cannot be trained'):
        model.train()
    before = [p.clone() for p in model.parameters()]
    detector = nn.Module()
    detector.backbone = model
    prefixed = {f'backbone.{key}': value for key, value in state_dict.items()}
    for module, given in ((model, state_dict), (detector, prefixed)):
        for strict in (True, False):
            with pytest.raises(RuntimeError, match='^this CvT was fused for inference: its parameters are'):
                module.load_state_dict(given, strict=strict)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before))


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_low_precision(dtype):
    model, x = trained().fuse(), torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = model(x)
        with torch.autocast('cpu', dtype):
            autocast = model(x)
        whole = model.to(dtype)(x.to(dtype))
    for outs in (autocast, whole):
        for a, b in zip(outs, expected):
            assert a.dtype == dtype and (a.float() - b).abs().mean() < .03


def small() -> CvT:
    """Windows, and a global block with CLS token: quick to compile."""
    arch = dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3])
    return trained(arch=arch, window_size=[4, None]).fuse()


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    counters.clear()


def compilations() -> int:
    return counters['stats']['unique_graphs']


def assert_same(compiled: CvT, eager: CvT, *shape: int, tolerance: float = 1e-5) -> None:
    x = torch.rand(shape)
    with torch.no_grad():
        for a, b in zip(compiled(x), eager(x), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=tolerance)
            assert not a.requires_grad and a.is_contiguous()


def test_a_users_compile_takes_a_second_size(fresh):
    """Its sides are symbols then, of which windows need the whole and the rest."""
    eager = small()
    compiled = torch.compile(eager, fullgraph=True)
    for size in ((64, 64), (49, 64)):
        assert_same(compiled, eager, 1, 3, *size)


def test_80_images_of_a_detection_test_set_are_compiled_for_4_times_at_most(fresh):
    eager = small()
    compiled = copy.deepcopy(eager).fuse(compile=True)
    # As mmdet's test pipeline makes them, at a tenth of the size: sides up to 134 and 80, then padded to a multiple.
    # Windows of 4 divide the map both ways, one way, not at all, and are larger than it.
    generator = torch.Generator().manual_seed(0)
    ratios = torch.empty(80).uniform_(0.6, 2.2, generator=generator).tolist()
    sizes = [(64, 64), (80, 136), (16, 16)]
    for ratio in ratios:
        long, short = (min(134., 80 * max(ratio, 1 / ratio)), min(80., 134 / max(ratio, 1 / ratio)))
        height, width = (short, long) if ratio > 1 else (long, short)
        sizes.append((-(-int(height) // 4) * 4, -(-int(width) // 4) * 4))
    assert len(set(sizes)) > 15
    for size in sizes:
        assert_same(compiled, eager, 1, 3, *size)
    assert 1 <= compilations() <= 4


def test_compiled_for_one_size_in_bf16(fresh):
    eager = small()
    compiled = copy.deepcopy(eager)
    with torch.autocast('cpu', torch.bfloat16):
        assert compiled.fuse(compile=(1, 3, 48, 64)) is compiled
        assert compilations() == 1
        assert_same(compiled, eager, 1, 3, 48, 64, tolerance=0.05)
        assert_same(compiled, eager, 2, 3, 64, 64, tolerance=0)  # another size: as without compiling
    assert compilations() == 1


def test_exports_to_onnx(tmp_path):
    onnxruntime = pytest.importorskip('onnxruntime')
    pytest.importorskip('onnxscript')
    model, x = small(), torch.rand(1, 3, 49, 64)
    with torch.no_grad():
        expected = model(x)
        torch.onnx.export(model, (x, ), tmp_path / 'cvt.onnx', dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'cvt.onnx')
    got = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert len(got) == 2
    for a, b in zip(got, expected):
        torch.testing.assert_close(torch.from_numpy(a), b, rtol=0, atol=1e-4)
