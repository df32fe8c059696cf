"""The backbone inside mmdet's and mmseg's own models: loss, gradients, prediction, odd sizes, frozen stages."""
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import InstanceData, PixelData

ROOT = Path(__file__).resolve().parents[2]
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
DIMS = {0: 8, 1: 24, 2: 48, 3: 48}
DETECTORS = ['maskrcnn_cvt13_coco', 'cascademaskrcnn_cvt13_coco_3x', 'retinanet_cvt13_coco', 'dino_cvt13_coco']
SEGMENTORS = ['upernet_cvt13_ade20k', 'semfpn_cvt13_ade20k', 'mask2former_cvt13_ade20k']


def build(name: str, **backbone) -> torch.nn.Module:
    """A config's model on a tiny backbone; its heads are narrow and look at few places, which only saves time."""
    cfg = Config.fromfile(ROOT / f'configs/{name}.py')
    model = cfg.model
    model.backbone.update(arch=ARCH, init_cfg=None, **backbone)
    if model.data_preprocessor.get('size'):
        model.data_preprocessor.size = (79, 101)  # to which mmseg pads the images of a batch in training
    channels = [DIMS[i] for i in model.backbone.get('out_indices', (0, 1, 2))]
    if 'neck' in model:
        model.neck.in_channels = channels
    for head in (model.get('decode_head', {}), model.get('auxiliary_head', {})):
        if head and 'neck' not in model:
            index = head.get('in_index', range(len(channels)))
            head.in_channels = channels[index] if isinstance(index, int) else [channels[i] for i in index]
            head.channels = 32
    stages = model.get('train_cfg', {}).get('rcnn', [])
    for settings in stages if isinstance(stages, list) else [stages]:
        settings.sampler.num = 32
    if model.get('decode_head', {}).get('type') == 'Mask2FormerHead':
        model.decode_head.num_queries = 10
        model.decode_head.train_cfg.num_points = 512
    if model.type == 'DINO':
        model.num_queries = 20  # the maps of these small images have less than 900 places
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        built = MODELS.build(model)
        built.init_weights()
    return revert_sync_batchnorm(built)


def detection_batch(*sizes) -> dict:
    from mmdet.structures import DetDataSample
    from mmdet.structures.mask import BitmapMasks
    samples = []
    for height, width in sizes:
        masks = np.zeros((2, height, width), np.uint8)
        masks[0, 4:40, 4:40] = masks[1, 10:30, 20:60] = 1
        sample = DetDataSample(metainfo=dict(
            img_shape=(height, width), ori_shape=(height, width), scale_factor=(1., 1.), img_id=0))
        sample.gt_instances = InstanceData(
            bboxes=torch.tensor([[4., 4., 40., 40.], [20., 10., 60., 30.]]), labels=torch.tensor([3, 7]),
            masks=BitmapMasks(masks, height, width))
        sample.ignored_instances = InstanceData(bboxes=torch.zeros(0, 4), labels=torch.zeros(0, dtype=torch.long))
        samples.append(sample)
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    return dict(inputs=images, data_samples=samples)


def segmentation_batch(*sizes) -> dict:
    from mmseg.structures import SegDataSample
    samples = []
    for size in sizes:
        sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size, pad_shape=size, scale_factor=(1., 1.)))
        sample.gt_sem_seg = PixelData(data=torch.randint(0, 3, (1, *size)))
        samples.append(sample)
    images = [torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in sizes]
    return dict(inputs=images, data_samples=samples)


def total_loss(model: torch.nn.Module, batch: dict) -> torch.Tensor:
    losses = model(**model.data_preprocessor(batch, True), mode='loss')
    loss, _ = model.parse_losses(losses)
    assert torch.isfinite(loss)
    return loss


@pytest.mark.parametrize('name', DETECTORS + SEGMENTORS)
def test_loss_gradients_and_prediction(name):
    """Images of different odd sizes in a batch; every parameter takes part, so DDP needs no find_unused_parameters."""
    model = build(name, drop_path_rate=0.).train()
    sizes = ((63, 97), (70, 81))
    batch = detection_batch if name in DETECTORS else segmentation_batch
    torch.manual_seed(0)
    loss = total_loss(model, batch(*sizes))
    loss.backward()
    unused = [key for key, param in model.named_parameters() if param.requires_grad and param.grad is None]
    assert not unused
    assert 'backbone.stage2.cls_token' in dict(model.named_parameters())
    assert model.backbone.stage2.cls_token.grad.abs().sum() > 0

    model.eval()
    with torch.no_grad():
        results = model(**model.data_preprocessor(batch(sizes[0]), False), mode='predict')
    if name in DETECTORS:
        boxes = results[0].pred_instances
        assert boxes.bboxes.shape[1] == 4 and torch.isfinite(boxes.bboxes).all()
        if len(boxes):
            assert boxes.bboxes[:, 0::2].max() <= 97 and boxes.bboxes[:, 1::2].max() <= 63
        if 'masks' in boxes:
            assert boxes.masks.shape[1:] == (63, 97)
    else:
        assert results[0].pred_sem_seg.data.shape == (1, 63, 97)
        assert 0 <= results[0].pred_sem_seg.data.min() and results[0].pred_sem_seg.data.max() < 150
