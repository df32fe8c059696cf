"""Whole models with random weights, and random batches for them, of benchmarks and tests."""
from typing import Any

import torch
from mmengine.config import Config
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData

from cvt_dense.pretraining import ImageClassifier

OBJECTS = 8  # an image of COCO has 7 objects, one of ADE20K 8 classes


def build_model(config: str, **backbone: Any) -> BaseModel:
    """Build the model of a config file with random weights, and with other settings of its backbone."""
    cfg = Config.fromfile(config)
    cfg.model.backbone.update(init_cfg=None, **backbone)
    with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
        return revert_sync_batchnorm(MODELS.build(cfg.model))


def random_batch(model: BaseModel, batch: int, size: tuple[int, int], device: str = 'cpu') -> dict[str, Any]:
    """Return arguments of ``model(..., mode='loss')``: normalised random images and random ground truth.

    Args:
        model: classifier, detector or segmentor.
        batch: number of images.
        size: (H, W) of the images in pixels.
        device: device of the tensors.
    """
    inputs = torch.randn(batch, getattr(model.backbone, 'in_channels', 3), *size, device=device)
    if isinstance(model, ImageClassifier):
        return dict(inputs=inputs, labels=torch.randint(model.num_classes, (batch, ), device=device))
    shapes = dict.fromkeys(('img_shape', 'ori_shape', 'pad_shape', 'batch_input_shape'), size)
    samples = []
    for _ in range(batch):
        if hasattr(model, 'encode_decode'):
            from mmseg.structures import SegDataSample
            labels = torch.randint(min(OBJECTS, model.num_classes), (1, *size))
            sample = SegDataSample(metainfo=shapes, gt_sem_seg=PixelData(data=labels))
        else:
            from mmdet.structures import DetDataSample
            from mmdet.structures.mask import BitmapMasks
            corners = (torch.rand(OBJECTS, 2, 2) * torch.tensor(size[::-1])).sort(dim=1).values  # (x, y) each
            masks = torch.randint(2, (OBJECTS, *size), dtype=torch.uint8).numpy()
            objects = dict(bboxes=corners.flatten(1), labels=torch.zeros(OBJECTS, dtype=torch.long))
            sample = DetDataSample(
                metainfo=dict(shapes, scale_factor=(1., 1.)),
                gt_instances=InstanceData(**objects, masks=BitmapMasks(masks, *size)),
                ignored_instances=InstanceData(**objects)[:0])
        samples.append(sample.to(device))
    return dict(inputs=inputs, data_samples=samples)
