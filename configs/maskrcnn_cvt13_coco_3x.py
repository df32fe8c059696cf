# Mask R-CNN, CvT-13, COCO, 36 epochs, multi-scale. 8 GPUs * 2 = 16 images a step, lr 1e-4.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_instance_ms.py',
    '_base_/schedules/det_3x.py', '_base_/det_runtime.py'
]
model = dict(backbone=_base_.backbone)
