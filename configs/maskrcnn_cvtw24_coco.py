# Mask R-CNN, CvT-W24, COCO, 12 epochs. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the last layer;
# an estimated 8 GiB a GPU at 800x1280, 17 without with_cp.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvtw24.py', '_base_/datasets/coco_instance.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=dict(_base_.backbone, with_cp=True), neck=dict(in_channels=_base_.channels))
# ConvNeXt's largest models decay by 0.8 in each of 13 steps from the head to the stem. CvT-W24 has 25 steps:
# 0.8 ** (13 / 25).
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.9))
