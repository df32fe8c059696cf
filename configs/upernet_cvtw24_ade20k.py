# UperNet, CvT-W24, ADE20K at 512x512, 160,000 iterations. 8 GPUs * 2 = 16 images a step, lr 6e-5 at the
# last layer.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/cvtw24.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(
    backbone=_base_.backbone,
    decode_head=dict(in_channels=_base_.channels),
    auxiliary_head=dict(in_channels=_base_.channels[-1]))
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.95))
