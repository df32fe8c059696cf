"""Published weights are refused under other images than their own; weights that a checkpoint replaces are not read."""
import pytest
import timm
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from cvt_dense.engine.runner import leave_replaced_weights_out
from cvt_dense.errors import UserError
from cvt_dense.recipes import recipe
from cvt_dense.weights.preprocessing import check_preprocessing

IMAGENET = dict(mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375], bgr_to_rgb=True)
HALF = dict(mean=[127.5] * 3, std=[127.5] * 3, bgr_to_rgb=True)
RTMDET = {key: value[::-1] for key, value in IMAGENET.items() if key != 'bgr_to_rgb'}
CAFFE = dict(mean=[103.53, 116.28, 123.675], std=[1., 1., 1.], bgr_to_rgb=False)
CVT = dict(type='cvt_dense.CvT', arch='cvt-nano')
NETWORKS = {
    'cvt_dense://cvt-nano': CVT, 'hf://microsoft/cvt-13': CVT, 'weights/CvT-13-224x224-IN-1k.pth': CVT,
    'timm': dict(type='cvt_dense.TimmBackbone', model_name='test_vit.r160_in1k', out_indices=(0, 1, 2))}


@pytest.mark.parametrize('source', NETWORKS)
@pytest.mark.parametrize('images', [IMAGENET, HALF, RTMDET, CAFFE, dict(IMAGENET, bgr_to_rgb=False), None])
def test_images_of_published_weights(source, images):
    cfg = Config.fromfile(recipe('upernet_cvt_nano_shapes.py'))
    cfg.model.backbone = dict(NETWORKS[source], init_cfg=dict(type='Pretrained', checkpoint=source))
    cfg.model.data_preprocessor = dict(type='SegDataPreProcessor', **(images or {}))
    with DefaultScope.overwrite_default_scope('mmseg'):
        model = MODELS.build(cfg.model)
    expected = HALF if source == 'timm' else IMAGENET
    assert source != 'timm' or timm.get_pretrained_cfg('test_vit.r160_in1k').mean == (0.5, 0.5, 0.5)
    if images == expected:
        check_preprocessing(cfg, model)
        return
    with pytest.raises(UserError, match='data_preprocessor'):
        check_preprocessing(cfg, model)
    model.backbone.init_cfg['checkpoint'] = 'mine.pth'
    check_preprocessing(cfg, model)
    if source != 'timm':
        with pytest.raises(UserError, match='data_preprocessor'):
            check_preprocessing(cfg, model, source)


@pytest.mark.parametrize('name, checkpoint, load_from, read', [
    ('maskrcnn_cvt13_coco', None, None, True), ('maskrcnn_cvt13_coco', None, 'a.pth', False),
    ('maskrcnn_cvt13_coco', 'a.pth', None, False), ('timm', None, 'a.pth', True), ('timm', 'a.pth', None, False)])
def test_pretrained_weights_are_read_unless_a_checkpoint_replaces_all(name, checkpoint, load_from, read):
    """A checkpoint that a training starts from must hold all weights of CvT, but not of a network of timm."""
    cfg = Config.fromfile(recipe('maskrcnn_cvt13_coco.py'))
    if name == 'timm':
        cfg.model.backbone = dict(NETWORKS['timm'], out_indices=(0, 1, 2, 3), init_cfg=cfg.model.backbone.init_cfg)
    with torch.device('meta'), DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
    leave_replaced_weights_out(model, checkpoint or load_from, bool(checkpoint))
    assert bool(model.backbone.init_cfg) == read
