"""Configs whose types are classes, as MMEngine's pure-Python ones have them, are read, checked and run like others."""
import json
from pathlib import Path

import pytest
import torch
from mmengine.registry import init_default_scope
from PIL import Image
from tiny_training import write_config

from cvt_dense.errors import UserError
from cvt_dense.launch.build import load_datasets
from cvt_dense.launch.flags import TrainFlags
from cvt_dense.launch.machine import adapt_to_machine
from cvt_dense.launch.read import read_training

CLASSIFIER = """
from mmengine.config import read_base

with read_base():
    from .data import *

from mmengine.dataset import DefaultSampler, default_collate
from mmengine.hooks import LoggerHook
from mmengine.optim import AmpOptimWrapper, ConstantLR
from mmengine.runner import EpochBasedTrainLoop, TestLoop, ValLoop
from torch.optim import AdamW

from cvt_dense.datasets import ImageDataset
from cvt_dense.engine import LayerDecayOptimWrapperConstructor, SafeCheckpointHook
from cvt_dense.evaluation import Accuracy
from cvt_dense.models import ClassificationPreprocessor, CvT, ImageClassifier

model = dict(
    type=ImageClassifier,
    backbone=dict(type=CvT, arch=dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6)),
                  out_type='cls_token', norm_eval=True),
    num_classes=2,
    data_preprocessor=dict(type=ClassificationPreprocessor, mean=[124., 116., 104.], std=[58., 57., 57.]))
train_dataloader = dict(
    batch_size=6, num_workers=0, persistent_workers=False, collate_fn=dict(type=default_collate),
    sampler=dict(type=DefaultSampler, shuffle=True),
    dataset=dict(type=ImageDataset, data_root=data_root, split='train', transform=dict(input_size=32)))
val_dataloader = dict(
    batch_size=50, num_workers=0, collate_fn=dict(type=default_collate),
    sampler=dict(type=DefaultSampler, shuffle=False),
    dataset=dict(type=ImageDataset, data_root=data_root, split='val', transform=dict(input_size=32)))
val_evaluator = dict(type=Accuracy)
train_cfg = dict(type=EpochBasedTrainLoop, max_epochs=1)
val_cfg = dict(type=ValLoop)
optim_wrapper = dict(
    type=AmpOptimWrapper, dtype='bfloat16', loss_scale=dict(enabled=False),
    optimizer=dict(type=AdamW, lr=1e-3, weight_decay=0.05),
    constructor=LayerDecayOptimWrapperConstructor, paramwise_cfg=dict(decay_rate=1.))
param_scheduler = [dict(type=ConstantLR, factor=0.5, end=9)]
default_hooks = dict(checkpoint=dict(type=SafeCheckpointHook), logger=dict(type=LoggerHook, interval=1))
auto_scale_lr = dict(base_batch_size=12, enable=True)
randomness = dict(seed=0)
"""

DETECTOR = """
from mmdet.datasets import CocoDataset
from mmdet.datasets.transforms import LoadAnnotations, PackDetInputs
from mmdet.evaluation import CocoMetric
from mmdet.models import FCNMaskHead, MaskRCNN, Shared2FCBBoxHead, StandardRoIHead
from mmcv.transforms import LoadImageFromFile
from mmengine.dataset import RepeatDataset
from mmengine.optim import AmpOptimWrapper

default_scope = 'mmdet'
model = dict(type=MaskRCNN, roi_head=dict(
    type=StandardRoIHead, bbox_head=dict(type=Shared2FCBBoxHead, num_classes={heads}),
    mask_head=dict(type=FCNMaskHead, num_classes={heads})))
pipeline = [dict(type=LoadImageFromFile), dict(type=LoadAnnotations, with_bbox=True, with_mask={masks}),
            dict(type=PackDetInputs)]
train_dataloader = dict(batch_size=1, num_workers=0, dataset=dict(type=RepeatDataset, times=2, dataset=dict(
    type=CocoDataset, data_root={root!r}, ann_file='train.json', data_prefix=dict(img='images/'),
    metainfo=dict(classes={classes}), pipeline=pipeline)))
val_evaluator = dict(type=CocoMetric, ann_file={root!r} + '/train.json')
optim_wrapper = dict(type=AmpOptimWrapper, dtype='bfloat16')
"""

SEGMENTOR = """
from mmcv.transforms import LoadImageFromFile
from mmseg.datasets import BaseSegDataset
from mmseg.datasets.transforms import LoadAnnotations, PackSegInputs
from mmseg.models import EncoderDecoder, UPerHead

default_scope = 'mmseg'
model = dict(type=EncoderDecoder, decode_head=dict(type=UPerHead, num_classes={classes}))
train_dataloader = dict(batch_size=1, num_workers=0, dataset=dict(
    type=BaseSegDataset, data_root={root!r}, data_prefix=dict(img_path='images', seg_map_path='maps'),
    img_suffix='.png', seg_map_suffix='.png', metainfo=dict(classes=('cat', 'dog')), reduce_zero_label=False,
    pipeline=[dict(type=LoadImageFromFile), dict(type=LoadAnnotations), dict(type=PackSegInputs)]))
"""


def data_sets(config: Path):
    """The training set of ``config`` as tools/train.py builds and checks it."""
    cfg = read_training(TrainFlags(config=str(config)))
    adapt_to_machine(cfg, 'none')
    init_default_scope(cfg.default_scope)
    return cfg, load_datasets(cfg, ['train'])['train']


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('pure')
    write_config(folder)
    for name in ('images', 'maps'):
        (folder / name).mkdir()
    Image.new('RGB', (20, 20)).save(folder / 'images/a.png')
    Image.new('L', (20, 20), 1).save(folder / 'maps/a.png')
    box = dict(id=1, image_id=1, category_id=1, bbox=[1, 1, 8, 8], area=64, iscrowd=0,
               segmentation=[[1, 1, 9, 1, 9, 9, 1, 9]])
    (folder / 'train.json').write_text(json.dumps(dict(
        images=[dict(id=1, file_name='a.png', width=20, height=20)], annotations=[box],
        categories=[dict(id=1, name='cat'), dict(id=2, name='dog')])))
    return folder


def test_classifier_trains_and_again_from_its_dump(folder, run_tool):
    (folder / 'data.py').write_text(f'data_root = {str(folder / "data")!r}\n')
    (folder / 'pure.py').write_text(CLASSIFIER)
    work_dir = folder / 'work'
    output = run_tool('tools/train.py', folder / 'pure.py', '--work-dir', work_dir).stdout
    assert 'No GPU: running in float32 instead of mixed precision.' in output and 'accuracy/top1: ' in output
    weights = torch.load(work_dir / 'epoch_1.pth', weights_only=False)
    # 6 images a step instead of 12, and ConstantLR.
    assert weights['meta']['iter'] == 6 and weights['optimizer']['param_groups'][0]['lr'] == 1e-3 / 2 / 2
    again = run_tool('tools/train.py', work_dir / 'pure.py', '--work-dir', folder / 'again').stdout
    assert 'No GPU' in again and 'AmpOptimWrapper' in (folder / 'again/pure.py').read_text()
    other = torch.load(folder / 'again/epoch_1.pth', weights_only=False)
    assert all(torch.equal(value, other['state_dict'][key]) for key, value in weights['state_dict'].items())

    # As the number of outputs reaches the data set, it refuses other labels.
    (folder / 'wrong.py').write_text(CLASSIFIER.replace('num_classes=2', 'num_classes=1'))
    output = run_tool('tools/train.py', folder / 'wrong.py', '--work-dir', folder / 'no', rc=2).stdout
    assert 'error: ' in output and 'num_classes' in output and not list((folder / 'no').glob('*.pth'))


@pytest.mark.parametrize('changed, message', [
    (dict(heads=3), 'has 2 classes, but model.roi_head.bbox_head.num_classes is 3; set it to 2'),
    (dict(classes=('cat', 'horse')), 'horse'),
    (dict(root='/no/such'), '/no/such'),
    (dict(masks=True, file='bare'), 'a mask .* the pipeline loads masks'),
    (dict(), None)])
def test_detection_data_is_checked(folder, tmp_path, changed, message):
    values = dict(dict(heads=2, classes=('cat', 'dog'), root=str(folder), masks=True), **changed)
    if values.pop('file', None):
        content = json.loads((folder / 'train.json').read_text())
        del content['annotations'][0]['segmentation']
        (tmp_path / 'train.json').write_text(json.dumps(content))
        (tmp_path / 'images').symlink_to(folder / 'images')
        values['root'] = str(tmp_path)
    (tmp_path / 'pure.py').write_text(DETECTOR.format(**values))
    if message is None:
        cfg, dataset = data_sets(tmp_path / 'pure.py')
        assert len(dataset) == 2 and cfg.optim_wrapper.type == 'OptimWrapper'
    else:
        with pytest.raises(UserError, match=message):
            data_sets(tmp_path / 'pure.py')


@pytest.mark.parametrize('classes, pixel, message', [
    (3, 1, 'has 2 classes, but model.decode_head.num_classes is 3'),
    (2, 7, r"the label map '.*a.png' holds the values \[7\]; allowed are 0 to 1"), (2, 1, None)])
def test_segmentation_data_is_checked(folder, tmp_path, classes, pixel, message):
    (tmp_path / 'images').symlink_to(folder / 'images')
    (tmp_path / 'maps').mkdir()
    Image.new('L', (20, 20), pixel).save(tmp_path / 'maps/a.png')
    (tmp_path / 'pure.py').write_text(SEGMENTOR.format(root=str(tmp_path), classes=classes))
    if message is None:
        assert len(data_sets(tmp_path / 'pure.py')[1]) == 1
    else:
        with pytest.raises(UserError, match=message):
            data_sets(tmp_path / 'pure.py')
