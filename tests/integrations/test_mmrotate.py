"""MMRotate on the operators of cvt_dense.ops, where it is installed."""
import re

import numpy as np
import pytest
import torch
from load_tool import ROOT
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData
from PIL import Image, ImageDraw

from cvt_dense.registry import MODELS

mmrotate = pytest.importorskip('mmrotate')


def draw(number: int) -> tuple[list[torch.Tensor], list[DetDataSample]]:
    """Draw a turned rectangle into each image of 128 x 128 pixels."""
    from mmrotate.structures import RotatedBoxes
    random, images, samples = np.random.RandomState(0), [], []
    for _ in range(number):
        box = random.rand(5) * [40, 40, 24, 8, np.pi / 2] + [44, 44, 40, 16, 0]
        image = Image.new('RGB', (128, 128), (90, 110, 90))
        corners = RotatedBoxes(torch.tensor(box)[None]).convert_to('qbox').tensor[0].tolist()
        ImageDraw.Draw(image).polygon(corners, fill=(220, 60, 40))
        images.append(torch.tensor(np.array(image)).permute(2, 0, 1))
        sample = DetDataSample(metainfo=dict(
            img_shape=(128, 128), ori_shape=(128, 128), scale_factor=(1., 1.), batch_input_shape=(128, 128)))
        sample.gt_instances = InstanceData(
            bboxes=RotatedBoxes(torch.tensor(box, dtype=torch.float32)[None]), labels=torch.tensor([0]))
        samples.append(sample)
    return images, samples


def test_rotated_retinanet_overfits_four_images(tmp_path):
    """The config of the guide, with a smaller network."""
    from mmcv.ops import box_iou_rotated
    from mmrotate.utils import register_all_modules
    blocks = re.findall(r'^```python\n(.*?)^```', (ROOT / 'docs/guides/mm_config.md').read_text(), re.M | re.S)
    (tmp_path / 'config.py').write_text(next(block for block in blocks if 'mmrotate' in block))
    cfg = Config.fromfile(tmp_path / 'config.py')
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmrotate'):
        register_all_modules(init_default_scope=False)
        cfg.model.backbone.update(
            arch='cvt-nano', norm_eval=False, init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano'))
        cfg.model.neck.update(in_channels=[64, 128], out_channels=32)
        cfg.model.bbox_head.update(num_classes=1, in_channels=32, feat_channels=32)
        model = MODELS.build(cfg.model)
        model.init_weights()
        images, samples = draw(4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1., 0.05, total_iters=150)
        losses = []
        for _ in range(150):
            data = model.data_preprocessor(dict(inputs=images, data_samples=samples), training=True)
            loss, _ = model.parse_losses(model(**data, mode='loss'))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        with torch.no_grad():
            results = model.eval()(**model.data_preprocessor(dict(inputs=images, data_samples=samples)), mode='predict')
    overlaps = [box_iou_rotated(result.pred_instances.bboxes[:1], sample.gt_instances.bboxes.tensor).item()
                for result, sample in zip(results, samples, strict=True)]
    assert losses[-1] < losses[0] / 2
    assert min(overlaps) > 0.5
