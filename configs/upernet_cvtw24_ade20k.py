# UperNet, CvT-W24, ADE20K at 512x512, 160,000 iterations. 8 GPUs * 2 = 16 images a step, lr 6e-5 at the
# last layer.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/datasets/ade20k.py', '_base_/schedules/seg_160k.py',
    '_base_/seg_runtime.py'
]
pretrained = 'hf://microsoft/cvt-w24-384-22k'
model = dict(
    backbone=dict(
        arch='cvt-w24', drop_path_rate=0.4, init_cfg=dict(type='Pretrained', checkpoint=pretrained)),
    decode_head=dict(in_channels=[192, 768, 1024]),
    auxiliary_head=dict(in_channels=1024))
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.95))
