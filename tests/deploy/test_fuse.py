"""fuse() and use_cpu_kernels(): the same output, of stock heads too, and no way to misuse a fused network."""
import copy
from pathlib import Path

import mmdet
import mmseg
import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmengine import Config
from mmengine.registry import DefaultScope
from random_weights import randomise
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from cvt_dense.deploy import cpu
from cvt_dense.deploy.cpu import use_cpu_kernels
from cvt_dense.deploy.fuse import fuse
from cvt_dense.errors import UserError
from cvt_dense.models import CvT
from cvt_dense.registry import MODELS

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
        use_cpu_kernels(model)
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


@pytest.fixture(params=[True, False, None], ids=['onednn', 'pytorch', 'timed'])
def faster(request, monkeypatch):
    """Whether oneDNN and blocks are taken for faster; None: as they are measured."""
    if request.param is not None:
        monkeypatch.setattr(cpu, 'is_faster', lambda candidate, baseline: request.param)
    return request.param


@pytest.mark.parametrize('mode', [torch.no_grad, torch.inference_mode])
def test_linear_layers(faster, mode):
    """Changed weights are packed again, a batch without rows decides nothing, and other dtypes are refused."""
    with mode():
        model, x = nn.Sequential(nn.Linear(8, 5)), torch.rand(3, 8)
        use_cpu_kernels(model)
        assert model(x[:0]).shape == (0, 5) and not model[0].choices
        for change in (
                lambda: None, lambda: model[0].weight.mul_(2), lambda: model.load_state_dict(
                    {key: torch.rand_like(value) for key, value in model.state_dict().items()}),
                lambda: setattr(model[0], 'weight', nn.Parameter(torch.rand(5, 8)))):
            change()
            torch.testing.assert_close(model(x), model[0].plain(x))
        assert len(model[0].choices) == (mode is torch.no_grad)
        with pytest.raises(RuntimeError):
            model(x.bfloat16())


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_exchanged_layers_give_the_same_maps(faster, dtype, monkeypatch):
    monkeypatch.setattr(cpu, 'BLOCK', 700)  # attention weights, of which these maps have more
    model, x = trained(attn_cfg=[WINDOWS, None, None]), torch.rand(2, 3, 49, 90)
    with torch.no_grad():
        expected = model(x)
        fuse(model)
        use_cpu_kernels(model)
        layers = [module for module in model.modules() if isinstance(module, cpu.InferenceLinear)]
        with torch.autocast('cpu', dtype, enabled=dtype != torch.float32):
            outs = model(x)
            kinds, _ = len(layers[0].choices), model(x[..., :64])
        copied = copy.deepcopy(model)(x)
    assert len(layers) == 30 and len(layers[0].choices) == kinds
    assert faster is None or set(layers[0].choices.values()) == {faster}
    assert any(kind[0] == 'attention' for kind in layers[0].choices) == (dtype == torch.bfloat16)
    for a, b, c in zip(outs, expected, copied):
        torch.testing.assert_close(c, b, rtol=0, atol=1e-5)
        assert (a.float() - b).abs().max() < (1e-5 if dtype == torch.float32 else .1)


# -- heads of mmdet's and mmseg's stock configs ----------------------------------------------------


CHANNELS = [8, 16, 32]
BACKBONE = dict(type='cvt_dense.CvT', arch=dict(embed_dims=CHANNELS, depths=[1, 1, 1], num_heads=[1, 2, 4]))
# Heads with deformable convolutions, groups, attention, points, masks, convolutions of boxes and shared layers
DETECTORS = [
    'deformable_detr/deformable-detr_r50_16xb2-50e_coco', 'dyhead/atss_r50_fpn_dyhead_1x_coco',
    'mask_rcnn/mask-rcnn_r50_fpn_1x_coco', 'point_rend/point-rend_r50-caffe_fpn_ms-1x_coco',
    'reppoints/reppoints-moment_r50_fpn_1x_coco', 'solov2/solov2_r50_fpn_1x_coco']
SEGMENTORS = ['ccnet_r50-d8', 'encnet_r50-d8', 'segformer_mit-b0']


def detector(name: str) -> Config:
    cfg = Config.fromfile(Path(mmdet.__file__).parent / '.mim' / 'configs' / f'{name}.py').model
    neck = cfg.neck[0] if isinstance(cfg.neck, list) else cfg.neck
    neck.in_channels = CHANNELS
    if 'start_level' in neck:
        neck.start_level = 0
    if 'rpn_head' in cfg:
        cfg.test_cfg.rpn.max_per_img = 5
    if 'num_queries' in cfg:
        cfg.num_queries = 10
    return cfg


def segmentor(name: str) -> Config:
    cfg = Config.fromfile(Path(mmseg.__file__).parent / '.mim' / 'configs' / '_base_' / 'models' / f'{name}.py').model
    cfg.auxiliary_head, head = None, cfg.decode_head
    several = isinstance(head.in_index, (list, tuple))
    indices = list(range(3))[-len(head.in_index):] if several else 2
    head.update(norm_cfg=dict(type='BN'), in_index=indices,
                in_channels=[CHANNELS[i] for i in indices] if several else CHANNELS[2])
    return cfg


def tensors(output: object) -> list[Tensor]:
    """Return every tensor in a tree of sequences and mappings."""
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


@pytest.mark.slow
@pytest.mark.parametrize('scope, name', [
    *(('mmdet', name) for name in DETECTORS), *(('mmseg', name) for name in SEGMENTORS)])
def test_same_output_of_heads(scope, name, monkeypatch):
    monkeypatch.setattr(cpu, 'is_faster', lambda candidate, baseline: True)
    cfg = (detector if scope == 'mmdet' else segmentor)(name)
    cfg.backbone = BACKBONE
    cfg.pop('pretrained', None)
    with DefaultScope.overwrite_default_scope(scope):
        model = MODELS.build(cfg).eval()
        if scope == 'mmdet':
            batch = model.data_preprocessor(demo_mm_inputs(1, [[3, 96, 96]], with_mask=True, use_box_type=True), False)
        else:
            batch = dict(inputs=torch.randn(1, 3, 96, 96))
        with torch.no_grad():
            expected = tensors(model(**copy.deepcopy(batch), mode='tensor'))
            fuse(model)
            use_cpu_kernels(model)
            results = [tensors(model(**copy.deepcopy(batch), mode='tensor'))]
        results.append(tensors(model(**copy.deepcopy(batch), mode='tensor')))  # with gradients
    assert expected
    for result in results:
        for got, wanted in zip(result, expected, strict=True):
            wrong = (got - wanted).abs() > 1e-3 * wanted.abs().max()
            assert wrong.float().mean() < 1e-4  # SOLO keeps local maxima, which rounding decides
