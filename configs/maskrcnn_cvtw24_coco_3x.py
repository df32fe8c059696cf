# Mask R-CNN, CvT-W24, COCO, 36 epochs, multi-scale. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the last layer.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/datasets/coco_instance_ms.py', '_base_/schedules/det_3x.py',
    '_base_/det_runtime.py'
]
pretrained = 'hf://microsoft/cvt-w24-384-22k'
model = dict(
    backbone=dict(
        arch='cvt-w24',
        drop_path_rate=0.4,
        with_cp=True,
        init_cfg=dict(type='Pretrained', checkpoint=pretrained)),
    neck=dict(in_channels=[192, 768, 1024]))
# As ConvNeXt's largest models (0.8 a layer, 12 layers) over the 25 steps from the head to the stem:
# 0.8 ** (12 / 25).
optim_wrapper = dict(paramwise_cfg=dict(decay_rate=0.9))
