# RetinaNet, CvT-13, COCO, 12 epochs, PVTv2's optimizer. 8 GPUs * 2 = 16 images a step, lr 1e-4.
_base_ = [
    '_base_/models/retinanet_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_detection.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=dict(_base_.backbone, drop_path_rate=0.1))
optim_wrapper = dict(optimizer=dict(weight_decay=1e-4))
