"""MMRotate on the operators of cvt_dense.ops, where it is installed."""
import re

import pytest
import torch
from load_tool import ROOT
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from random_batch import random_batch

from cvt_dense.registry import MODELS

mmrotate = pytest.importorskip('mmrotate')


def test_rotated_retinanet_has_gradients_and_suppresses_boxes(tmp_path):
    """The config of the guide, with a smaller network."""
    from mmrotate.structures import RotatedBoxes
    from mmrotate.utils import register_all_modules
    blocks = re.findall(r'^```python\n(.*?)^```', (ROOT / 'docs/guides/mm_config.md').read_text(), re.M | re.S)
    (tmp_path / 'config.py').write_text(next(block for block in blocks if 'mmrotate' in block))
    model = Config.fromfile(tmp_path / 'config.py').model
    model.backbone.update(arch='cvt-nano', init_cfg=None)
    model.neck.update(in_channels=[64, 128])
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
