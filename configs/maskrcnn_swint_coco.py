# Mask R-CNN, Swin-T of timm, COCO, 12 epochs: all else as maskrcnn_cvt13_coco.
# 8 GPUs * 2 = 16 images a step, lr 1e-4.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/swint.py', '_base_/datasets/coco_instance.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=dict(_delete_=True, **_base_.backbone), neck=dict(in_channels=_base_.channels))
