# Semantic FPN, CvT-W24, ADE20K at 512x512, 80,000 iterations. 4 GPUs * 4 = 16 images a step, lr 1e-4 at the
# last layer.
_base_ = [
    '_base_/models/semfpn_cvt.py', '_base_/backbones/cvtw24.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_80k.py', '_base_/seg_runtime.py'
]
model = dict(backbone=_base_.backbone, neck=dict(in_channels=_base_.channels))
train_dataloader = dict(batch_size=4)
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.95))
