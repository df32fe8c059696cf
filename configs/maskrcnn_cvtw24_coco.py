# Mask R-CNN, CvT-W24, COCO, 12 epochs. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the last layer;
# an estimated 8 GiB a GPU at 800x1280, 17 without with_cp.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvtw24.py', '_base_/datasets/coco_instance.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=dict(_base_.backbone, with_cp=True), neck=dict(in_channels=_base_.channels))
# As ConvNeXt's largest models (0.8 a layer, 12 layers) over the 25 steps from the head to the stem:
# 0.8 ** (12 / 25).
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.9))
