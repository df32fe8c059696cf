"""MMRotate on the operators of cvt_dense.ops, where it is installed."""
import pytest
import torch
from mmengine.hub import get_config
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from random_batch import random_batch

from cvt_dense.registry import MODELS

mmrotate = pytest.importorskip('mmrotate')


def test_rotated_retinanet_has_gradients_and_suppresses_boxes():
    from mmrotate.structures import RotatedBoxes
    from mmrotate.utils import register_all_modules
    model = get_config('mmrotate::rotated_retinanet/rotated-retinanet-rbox-le90_r50_fpn_1x_dota.py').model
    model.backbone = dict(type='cvt_dense.CvT', arch='cvt-nano', out_indices=(1, 2))
    model.neck.update(in_channels=[64, 128], start_level=0)
    model.test_cfg.update(score_thr=0., max_per_img=50)
    with DefaultScope.overwrite_default_scope('mmrotate'):
        register_all_modules(init_default_scope=False)
        model = MODELS.build(model)
        batch = random_batch(model, 2, (128, 128))
        boxes = RotatedBoxes(torch.tensor([[64., 60., 50., 24., 0.4]]))
        for sample in batch['data_samples']:
            sample.gt_instances = InstanceData(bboxes=boxes, labels=torch.tensor([0]))
        model.parse_losses(model(**batch, mode='loss'))[0].backward()
        assert all(parameter.grad is not None for parameter in model.parameters())
        results = model.eval()(**batch, mode='predict')
    assert all(0 < len(result.pred_instances) <= 50 for result in results)
