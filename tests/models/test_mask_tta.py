"""Test-time augmentation of detectors: boxes of several views, and their masks."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

import cvt_dense  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
VIEW = dict(ori_shape=(64, 96), img_shape=(128, 192), scale_factor=(2., 2.), flip=False, flip_direction=None, img_id=0)


@pytest.fixture(params=['maskrcnn_cvt13_coco', 'cascademaskrcnn_cvt13_coco_3x'])
def tta(request):
    """The config's test-time augmentation around its detector, with a tiny backbone and any box taken for an object."""
    cfg = Config.fromfile(ROOT / f'configs/{request.param}.py')
    cfg.model.backbone.update(arch=ARCH, init_cfg=None)
    cfg.model.neck.in_channels = [8, 24, 48]
    cfg.model.test_cfg.rpn.max_per_img = 20
    cfg.model.test_cfg.rcnn.update(score_thr=0., max_per_img=30)
    cfg.tta_model.tta_cfg.max_per_img = 30
    with DefaultScope.overwrite_default_scope('mmdet'):
        return MODELS.build(dict(cfg.tta_model, module=cfg.model)).eval()


def predict(tta, *views):
    from mmdet.structures import DetDataSample
    with torch.no_grad():
        result, = tta.test_step(dict(
            inputs=[[image] for image, _ in views], data_samples=[[DetDataSample(metainfo=meta)] for _, meta in views]))
    return result.pred_instances


def test_one_view_is_plain_prediction(tta):
    from mmdet.structures import DetDataSample
    image = torch.randint(0, 256, (3, 128, 192), dtype=torch.uint8)
    with torch.no_grad():
        plain, = tta.module.test_step(dict(inputs=[image], data_samples=[DetDataSample(metainfo=VIEW)]))
    plain, found = plain.pred_instances, predict(tta, (image, VIEW))
    assert len(found) == len(plain) == 30 and found.masks.shape == (30, 64, 96)
    assert torch.equal(found.labels, plain.labels) and torch.equal(found.masks, plain.masks)
    torch.testing.assert_close(found.bboxes, plain.bboxes, rtol=0, atol=1e-4)
    torch.testing.assert_close(found.scores, plain.scores, rtol=0, atol=1e-6)


def test_boxes_of_a_mirror_image_get_their_masks(tta):
    """The second view shows the image mirrored; whatever is found lies where the first shows it."""
    image = torch.randint(0, 256, (3, 128, 192), dtype=torch.uint8)
    alone, both = predict(tta, (image, VIEW)), predict(
        tta, (image, VIEW), (image.flip(2), dict(VIEW, flip=True, flip_direction='horizontal')))
    added = [i for i, box in enumerate(both.bboxes) if (alone.bboxes - box).abs().amax(dim=1).min() > 1e-3]
    assert 5 < len(added) < len(both) == 30
    for i in added:
        x1, y1, x2, y2 = both.bboxes[i].tolist()
        assert 0 <= x1 <= x2 <= 96 and 0 <= y1 <= y2 <= 64
        y, x = both.masks[i].nonzero(as_tuple=True)
        if len(x):
            assert x1 - 1 <= x.min() and x.max() <= x2 + 1 and y1 - 1 <= y.min() and y.max() <= y2 + 1
    assert both.masks[added].any()
