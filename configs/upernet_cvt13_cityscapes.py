# UperNet, CvT-13, Cityscapes at 512x1024, 80,000 iterations. 8 GPUs * 2 = 16 images a step, lr 6e-5.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/cityscapes.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(
    data_preprocessor=dict(size=(512, 1024)),
    backbone=_base_.backbone,
    decode_head=dict(num_classes=19),
    auxiliary_head=dict(num_classes=19))
max_iters = 80000
warmup_iters = min(1500, max_iters / 2)
train_cfg = dict(max_iters=max_iters, val_interval=8000)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', eta_min=0., power=1., begin=warmup_iters, end=max_iters, by_epoch=False)
]
