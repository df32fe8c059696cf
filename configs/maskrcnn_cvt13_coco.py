# Mask R-CNN, CvT-13, COCO, 12 epochs.
#
#   python tools/train.py configs/maskrcnn_cvt13_coco.py --data-root DIR      one GPU * 2 = 2 images a step
#   tools/dist_train.sh configs/maskrcnn_cvt13_coco.py 8 --data-root DIR      8 GPUs * 2 = 16, lr 1e-4
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_instance.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=_base_.backbone)
