"""A config's whole model and random batches for it, for get_flops.py and benchmark.py."""
import argparse
from typing import Any

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData

from ..console import add_console_filter, prints_to_log
from ..models import CvT, TimmBackbone
from ..pretraining import ImageClassifier, MaskedImageModel

OBJECTS = 8  # an image of COCO has 7 objects, one of ADE20K 8 classes


def parse_size(text: str) -> tuple[int, int]:
    """Parse '800x1280' as (800, 1280), height first, and '224' as (224, 224)."""
    height, _, width = text.partition('x')
    size = int(height), int(width or height)
    if min(size) < 16:
        raise argparse.ArgumentTypeError(f'{text}: CvT needs at least 16x16 pixels')
    return size


def build_model(path: str, **backbone: Any) -> BaseModel:
    """Return the classifier, detector or segmentor of a config file on the default device, with random weights.

    Args:
        path: config file.
        backbone: settings of its backbone to override, e.g. ``attn_cfg``.

    Raises:
        ValueError: the backbone is neither :class:`CvT` nor :class:`TimmBackbone`, or a setting is wrong.
    """
    cfg = Config.fromfile(path)
    cfg.model.get('backbone', {}).update(init_cfg=None, **backbone)
    scope = cfg.get('default_scope') or 'mmengine'
    with DefaultScope.overwrite_default_scope(scope):
        with prints_to_log():
            model = revert_sync_batchnorm(MODELS.build(cfg.model))
        if not isinstance(getattr(model, 'backbone', None), (CvT, TimmBackbone)):
            raise ValueError(f'{path}: model.backbone is neither cvt_dense.CvT nor cvt_dense.TimmBackbone.')
        if torch.get_default_device().type != 'meta':
            add_console_filter(MMLogger.get_current_instance())  # init_weights() logs a paragraph for each parameter
            model.init_weights()
    return model


def random_batch(model: BaseModel, batch: int, size: tuple[int, int], device: str = 'cpu') -> dict[str, Any]:
    """Return arguments of ``model(..., mode='loss')``: normalised random images and random ground truth.

    Args:
        model: classifier, detector, segmentor or masked image model.
        batch: number of images.
        size: (H, W) of the images in pixels.
        device: device of the tensors.
    """
    inputs = torch.randn(batch, getattr(model.backbone, 'in_channels', 3), *size, device=device)
    if isinstance(model, MaskedImageModel):
        return dict(inputs=inputs)
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


def forward(model: BaseModel, batch: dict[str, Any]) -> Any:
    """Return the network's outputs for a :func:`random_batch`, without post-processing."""
    if hasattr(model, 'encode_decode'):  # mmseg's 'tensor' mode gives Mask2Former's head too few arguments
        return model.encode_decode(batch['inputs'], [sample.metainfo for sample in batch['data_samples']])
    return model(**batch, mode='tensor')
