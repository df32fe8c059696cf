# Mask R-CNN, CvT-W24, COCO, 36 epochs, multi-scale. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the last layer.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvtw24.py', '_base_/datasets/coco_instance_ms.py',
    '_base_/schedules/det_3x.py', '_base_/det_runtime.py'
]
model = dict(backbone=dict(_base_.backbone, with_cp=True), neck=dict(in_channels=_base_.channels))
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.9))  # as in maskrcnn_cvtw24_coco.py
