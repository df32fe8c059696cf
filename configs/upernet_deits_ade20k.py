# UperNet, DeiT-S of timm, ADE20K at 512x512, 160,000 iterations: all else as upernet_cvt13_ade20k. mmseg's own neck
# makes strides 4, 8, 16 and 32 of its one map; mmdet has no such neck, so there is no Mask R-CNN on DeiT-S.
# 8 GPUs * 2 = 16 images a step, lr 6e-5.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/deits.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
width = _base_.channels[0]
model = dict(
    backbone=dict(_delete_=True, **_base_.backbone),
    neck=dict(type='MultiLevelNeck', in_channels=_base_.channels, out_channels=width, scales=[4, 2, 1, 0.5]),
    decode_head=dict(in_channels=[width] * 4, in_index=[0, 1, 2, 3]),
    auxiliary_head=dict(in_channels=width))
