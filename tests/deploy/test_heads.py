"""Every kind of head of mmdet's and mmseg's stock configs has the same output on a CvT for inference as before."""
import copy
from pathlib import Path

import mmdet
import mmseg
import pytest
import torch
from mmdet.testing import demo_mm_inputs
from mmengine import Config
from mmengine.registry import DefaultScope
from torch import Tensor
from torch.utils._pytree import tree_leaves

from cvt_dense.deploy import cpu
from cvt_dense.deploy.cpu import use_cpu_kernels
from cvt_dense.deploy.fuse import fuse
from cvt_dense.registry import MODELS

CHANNELS = [8, 16, 32]
BACKBONE = dict(type='cvt_dense.CvT', arch=dict(embed_dims=CHANNELS, depths=[1, 1, 1], num_heads=[1, 2, 4]))
# Heads with deformable convolutions, groups, attention, points, masks, convolutions of boxes and shared layers
DETECTORS = [
    'autoassign/autoassign_r50-caffe_fpn_1x_coco', 'deformable_detr/deformable-detr_r50_16xb2-50e_coco',
    'dyhead/atss_r50_fpn_dyhead_1x_coco',
    'fcos/fcos_r50-dcn-caffe_fpn_gn-head-center-normbbox-centeronreg-giou_1x_coco',
    'grid_rcnn/grid-rcnn_r50_fpn_gn-head_2x_coco', 'mask_rcnn/mask-rcnn_r50_fpn_1x_coco',
    'point_rend/point-rend_r50-caffe_fpn_ms-1x_coco', 'reppoints/reppoints-moment_r50_fpn_1x_coco',
    'solov2/solov2_r50_fpn_1x_coco', 'tood/tood_r50_fpn_1x_coco', 'vfnet/vfnet_r50-mdconv-c3-c5_fpn_ms-2x_coco']
SEGMENTORS = ['ann_r50-d8', 'ccnet_r50-d8', 'dnl_r50-d8', 'encnet_r50-d8', 'pspnet_r50-d8', 'segformer_mit-b0']


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


@pytest.mark.parametrize('scope, name', [
    *(('mmdet', name) for name in DETECTORS), *(('mmseg', name) for name in SEGMENTORS)])
def test_same_output(scope, name, monkeypatch):
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
