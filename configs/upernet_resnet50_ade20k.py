# UperNet, ResNet-50 of timm, ADE20K at 512x512, 160,000 iterations: all else as upernet_cvt13_ade20k.
# 8 GPUs * 2 = 16 images a step, lr 6e-5.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/resnet50.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(
    backbone=dict(_delete_=True, **_base_.backbone),
    decode_head=dict(in_channels=_base_.channels, in_index=[0, 1, 2, 3]),
    auxiliary_head=dict(in_channels=_base_.channels[2]))
