# Cascade Mask R-CNN, CvT-13, COCO, 36 epochs, multi-scale, ConvNeXt-T's optimizer: layer-wise decay.
# 8 GPUs * 2 = 16 images a step, lr 2e-4 at the last layer.
_base_ = [
    '_base_/models/cascademaskrcnn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_instance_ms.py',
    '_base_/schedules/det_3x.py', '_base_/det_runtime.py'
]
model = dict(backbone=_base_.backbone)
# ConvNeXt-T decays by 0.95 in 6 layers; CvT-13 has 14 steps from the head to the stem: 0.95 ** (6 / 14).
optim_wrapper = dict(optimizer=dict(lr=2e-4), paramwise_cfg=dict(decay_rate=0.98))
