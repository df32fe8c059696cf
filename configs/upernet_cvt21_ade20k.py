# UperNet, CvT-21, ADE20K at 512x512, 160,000 iterations. 8 GPUs * 2 = 16 images a step, lr 6e-5.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/cvt21.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(backbone=_base_.backbone)
