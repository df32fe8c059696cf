"""attn_cfg: types per stage and per block, combinations, neutral starts, low precision."""
import copy

import pytest
import torch
from random_weights import randomise

from cvt_dense.errors import CheckpointError
from cvt_dense.models import CvT

ARCH = dict(embed_dims=[8, 24, 48], depths=[1, 2, 1], num_heads=[1, 3, 6])
WINDOWS = dict(type='cvt_dense.WindowedAttention', window_size=4)
ADDED = dict(layer_scale_init_value=1., pos_embed=[4, None, 3])  # leaves published weights their function at the start
OPTIONS = dict(added=ADDED, windows=dict(attn_cfg=[WINDOWS, WINDOWS, None]),
               together=dict(ADDED, attn_cfg=[WINDOWS, [None, WINDOWS], None]))


def types_of(model: CvT) -> list[list[str]]:
    return [[type(block.attn).__name__.removesuffix('Attention') for block in stage.blocks] for stage in model.stages]


@pytest.mark.parametrize('attn_cfg, expected', [
    (None, [['Conv'], ['Conv', 'Conv'], ['Conv']]),
    (WINDOWS, [['Windowed'], ['Windowed', 'Windowed'], ['Windowed']]),
    ((WINDOWS, WINDOWS, None), [['Windowed'], ['Windowed', 'Windowed'], ['Conv']]),
    ([None, [WINDOWS, None], WINDOWS], [['Conv'], ['Windowed', 'Conv'], ['Windowed']])], ids=str)
def test_types_of_stages_and_blocks(attn_cfg, expected):
    before = copy.deepcopy(attn_cfg)
    assert types_of(CvT(ARCH, attn_cfg=attn_cfg)) == expected and attn_cfg == before


@pytest.mark.parametrize('attn_cfg, setting', [
    ([WINDOWS, None], 'attn_cfg'), ([None, [WINDOWS], None], 'attn_cfg of a stage'),
    (dict(type='cvt_dense.Nothing'), 'cvt_dense.Nothing'), (WINDOWS | dict(window_size=7), 'window_size=7'),
    (dict(num_heads=1), 'num_heads')], ids=str)  # a key of arch has one place
def test_wrong_settings_are_named(attn_cfg, setting):
    with pytest.raises((ValueError, KeyError, TypeError), match=setting):
        CvT(ARCH, attn_cfg=attn_cfg)


def test_published_weights_have_the_same_function_at_the_start():
    plain, model = randomise(CvT(ARCH)), CvT(ARCH, **ADDED).eval()
    result = model.load_strictly(plain.state_dict(), 'the file')
    assert set(result.new) == set(model.state_dict()) - set(plain.state_dict()) and result.new
    with pytest.raises(CheckpointError, match='pos_embed'):
        plain.check_loading(model.state_dict(), 'the file')
    with torch.no_grad():
        x = torch.rand(2, 3, 49, 90)
        for a, b in zip(model(x), plain(x)):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_gradients_reach_every_parameter(options):
    model = randomise(CvT(ARCH, **options, norm_eval=True)).train()
    sum(y.square().mean() for y in model(torch.rand(2, 3, 49, 90))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and (parameter.grad.any() or 'proj_k.bias' in name), name


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('options', OPTIONS.values(), ids=OPTIONS)
def test_runs_in_lower_precisions(options, dtype):
    """As a whole, and under autocast, where the residual stream stays in the lower precision."""
    model, x = randomise(CvT(ARCH, **options)), torch.rand(1, 3, 49, 64)
    with torch.no_grad():
        expected = model(x)
        got = model.to(dtype)(x.to(dtype))
    with torch.autocast('cpu', dtype):
        assert {y.dtype for y in CvT(ARCH, **options)(x)} == {dtype}
    for a, b in zip(got, expected):
        assert a.dtype == dtype and (a.float() - b).abs().mean() < 0.05


# -- training ------------------------------------------------------------------------------


def test_what_does_not_decay():
    model = CvT(ARCH, pos_embed=5)
    assert model.no_weight_decay() == {*(f'stage{i}.pos_embed' for i in range(3)), 'stage2.cls_token'}
    assert model.get_layer_depth('stage0.pos_embed') == (0, 6) and model.get_layer_depth('stage1.pos_embed') == (2, 6)
