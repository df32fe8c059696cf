"""Configs whose types are classes, as MMEngine's pure-Python ones have them, are read, checked and run like others."""
import torch
from load_tool import run_tool
from tiny_training import write_config

CLASSIFIER = """
from mmengine.config import read_base

with read_base():
    from .data import *

from mmengine.dataset import DefaultSampler, default_collate
from mmengine.optim import AmpOptimWrapper
from mmengine.runner import EpochBasedTrainLoop
from torch.optim import AdamW

from cvt_dense.engine import LayerDecayOptimWrapperConstructor, SafeCheckpointHook
from cvt_dense.models import CvT
from cvt_dense.pretraining import Accuracy, ClassificationPreprocessor, ImageClassifier, ImageDataset

model = dict(
    type=ImageClassifier,
    backbone=dict(type=CvT, arch=dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6)),
                  out_type='cls_token', norm_eval=True),
    num_classes=2,
    data_preprocessor=dict(type=ClassificationPreprocessor))
train_dataloader, val_dataloader = (dict(
    batch_size=6, num_workers=0, collate_fn=dict(type=default_collate),
    sampler=dict(type=DefaultSampler, shuffle=split == 'train'),
    dataset=dict(type=ImageDataset, data_root=data_root, split=split, transform=dict(input_size=32)))
    for split in ('train', 'val'))
val_evaluator = dict(type=Accuracy)
train_cfg = dict(type=EpochBasedTrainLoop, max_epochs=1)
val_cfg = dict()
optim_wrapper = dict(
    type=AmpOptimWrapper, dtype='bfloat16', loss_scale=dict(enabled=False),
    optimizer=dict(type=AdamW, lr=1e-3, weight_decay=0.05),
    constructor=LayerDecayOptimWrapperConstructor, paramwise_cfg=dict(decay_rate=1.))
default_hooks = dict(checkpoint=dict(type=SafeCheckpointHook))
auto_scale_lr = dict(base_batch_size=12, enable=True)
randomness = dict(seed=0)
"""


def test_classifier_trains_and_again_from_its_dump(tmp_path):
    folder = write_config(tmp_path).parent
    (folder / 'data.py').write_text(f'data_root = {str(folder / "data")!r}\n')
    (folder / 'pure.py').write_text(CLASSIFIER)
    work_dir = folder / 'work'
    output = run_tool('train', folder / 'pure.py', '--work-dir', work_dir)
    assert 'accuracy/top1: ' in output
    weights = torch.load(work_dir / 'epoch_1.pth', weights_only=False)
    # 6 images a step instead of 12.
    assert weights['meta']['iter'] == 6 and weights['optimizer']['param_groups'][0]['lr'] == 1e-3 / 2
    run_tool('train', work_dir / 'pure.py', '--work-dir', folder / 'again')
    assert 'AmpOptimWrapper' in (folder / 'again/pure.py').read_text()
    other = torch.load(folder / 'again/epoch_1.pth', weights_only=False)
    assert all(torch.equal(value, other['state_dict'][key]) for key, value in weights['state_dict'].items())

    # As the number of outputs reaches the data set, it refuses other labels.
    options = '--work-dir', folder / 'no', '--cfg-options', 'model.num_classes=1'
    assert 'num_classes' in run_tool('train', folder / 'pure.py', *options, rc=2)
