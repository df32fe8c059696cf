"""The backbone inside mmdet's and mmseg's own models: loss, gradients, prediction, odd sizes, frozen stages."""
import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from random_batch import random_batch
from templates_edited import recipe

ARCH = dict(embed_dims=(64, 192, 384), depths=(1, 1, 1), num_heads=(1, 3, 6))  # CvT-13 with few blocks
# Mask R-CNN and UperNet train in two processes in tests/launch/test_distributed.py.
DETECTORS = ['retinanet_cvt13_coco', 'dino_cvt13_coco']
SEGMENTORS = ['semfpn_cvt13_ade20k', 'mask2former_cvt13_ade20k']


def build(name: str) -> torch.nn.Module:
    """A config's model with few blocks; some heads look at few places, which only saves time."""
    cfg = recipe(name)
    model = cfg.model
    model.backbone.update(arch=ARCH, init_cfg=None, drop_path_rate=0.)
    if 'mask2former' in name:
        model.decode_head.num_queries = 10
        model.decode_head.train_cfg.num_points = 512
    model.test_cfg.score_thr = 0.  # of RetinaNet
    if model.type == 'DINO':
        model.num_queries = 20  # the maps of these small images have less than 900 places
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        built = MODELS.build(model)
        built.init_weights()
    return revert_sync_batchnorm(built)


@pytest.mark.parametrize('name', DETECTORS + SEGMENTORS)
def test_loss_gradients_and_prediction(name):
    """Images of an odd size; every parameter takes part, so DDP needs no find_unused_parameters."""
    model = build(name).train()
    loss, _ = model.parse_losses(model(**random_batch(model, 2, (79, 101)), mode='loss'))
    assert torch.isfinite(loss)
    loss.backward()
    assert not [key for key, param in model.named_parameters() if param.requires_grad and param.grad is None]
    assert model.backbone.stage2.cls_token.grad.abs().sum() > 0
    with torch.no_grad():
        result = model.eval()(**random_batch(model, 1, (63, 97)), mode='predict')[0]
    if name in DETECTORS:
        assert len(result.pred_instances) and (result.pred_instances.bboxes <= torch.tensor([97, 63, 97, 63])).all()
    else:
        labels = result.pred_sem_seg.data
        assert labels.shape == (1, 63, 97) and 0 <= labels.min() and labels.max() < 150
