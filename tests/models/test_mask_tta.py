"""Test-time augmentation of detectors: boxes of several views, their masks, and the files of tools/test.py."""
import contextlib
import io
import json
from pathlib import Path

import pytest
import torch
from _shapes import generate
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


@pytest.mark.parametrize('name', ['retinanet_cvt13_coco', 'dino_cvt13_coco'])
def test_box_detectors_take_mmdets_own(name):
    cfg = Config.fromfile(ROOT / f'configs/{name}.py')
    assert cfg.tta_model.type == 'DetTTAModel' and cfg.tta_model.tta_cfg.max_per_img == 100
    assert [step.type for step in cfg.tta_pipeline] == ['LoadImageFromFile', 'TestTimeAug']


def test_files_of_predictions(run_tool, tmp_path):
    """tools/test.py --tta --out writes what pycocotools reads, with the scores that the tool printed."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    data = generate(tmp_path / 'shapes', train=1, val=3, train_per_class=1, val_per_class=1) / 'detection'
    truth = COCO(data / 'annotations' / 'instances_val.json')
    config = tmp_path / 'config.py'
    classes = tuple(category['name'] for category in truth.dataset['categories'])
    text = (ROOT / 'configs/maskrcnn_cvt13_custom.py').read_text().replace("'_base_/", f"'{ROOT}/configs/_base_/")
    for old, new in {"('cat', 'dog')": repr(classes), 'train.json': 'instances_train.json',
                     'val.json': 'instances_val.json',
                     "image_size = 224 if arch == 'nano' else 800": 'image_size = 128'}.items():
        assert old in text
        text = text.replace(old, new)
    config.write_text(text + f"""
model['backbone'] = dict(arch=dict(**{ARCH!r}), init_cfg=None)
model.update(
    neck=dict(in_channels=[8, 24, 48]),
    roi_head=dict(bbox_head=dict(num_classes={len(classes)}, fc_out_channels=64),
                  mask_head=dict(num_classes={len(classes)}, num_convs=1, conv_out_channels=16)),
    test_cfg=dict(rpn=dict(max_per_img=20), rcnn=dict(score_thr=0., max_per_img=30)))
tta_model = dict(tta_cfg=dict(max_per_img=30))
""")
    cfg = Config.fromfile(config)
    with DefaultScope.overwrite_default_scope('mmdet'):
        torch.save(dict(state_dict=MODELS.build(cfg.model).state_dict(), meta={}), tmp_path / 'random.pth')
    output = run_tool('tools/test.py', config, tmp_path / 'random.pth', '--data-root', data, '--work-dir',
                      tmp_path / 'work', '--tta', '--out', tmp_path / 'out', '--cfg-options',
                      'test_dataloader.num_workers=0').stdout
    for kind in ('bbox', 'segm'):
        path = tmp_path / 'out' / f'predictions.{kind}.json'
        found = json.loads(path.read_text())
        assert {row['image_id'] for row in found} == set(truth.getImgIds())
        assert {row['category_id'] for row in found} <= set(truth.getCatIds())
        assert len(found) == 3 * 30
        with contextlib.redirect_stdout(io.StringIO()):
            scores = COCOeval(truth, truth.loadRes(str(path)), kind)
            scores.evaluate()
            scores.accumulate()
            scores.summarize()
        assert f'coco/{kind}_mAP: {round(scores.stats[0], 3):.4f}' in output
