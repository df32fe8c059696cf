# Mask R-CNN, CvT-13, COCO, 12 epochs.
#
#   python tools/train.py configs/maskrcnn_cvt13_coco.py --data-root DIR      one GPU * 2 = 2 images a step
#   tools/dist_train.sh configs/maskrcnn_cvt13_coco.py 8 --data-root DIR      8 GPUs * 2 = 16, lr 1e-4
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/datasets/coco_instance.py', '_base_/schedules/det_1x.py',
    '_base_/det_runtime.py'
]
# The authors' ImageNet weights, or the path of their file; --cfg-options model.backbone.init_cfg=None trains
# from scratch.
pretrained = 'hf://microsoft/cvt-13'
model = dict(backbone=dict(arch='cvt-13', init_cfg=dict(type='Pretrained', checkpoint=pretrained)))
