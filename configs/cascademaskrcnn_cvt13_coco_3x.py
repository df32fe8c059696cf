# Cascade Mask R-CNN, CvT-13, COCO, 36 epochs, multi-scale, ConvNeXt-T's optimizer: layer-wise decay.
# 8 GPUs * 2 = 16 images a step, lr 2e-4 at the last layer.
_base_ = [
    '_base_/models/cascademaskrcnn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_instance_ms.py',
    '_base_/schedules/det_3x.py', '_base_/det_runtime.py'
]
model = dict(backbone=_base_.backbone)
# With ConvNeXt-T, mmdet's Cascade Mask R-CNN decays by 0.7 in each of 7 steps from the head to the stem. CvT-13 has 14
# steps: 0.7 ** (7 / 14).
optim_wrapper = dict(optimizer=dict(lr=2e-4), paramwise_cfg=dict(decay_rate=0.84))
