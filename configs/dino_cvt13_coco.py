# DINO (four levels), CvT-13, COCO, 12 epochs, multi-scale. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the last
# layer.
_base_ = [
    '_base_/models/dino_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/coco_detection_ms.py',
    '_base_/schedules/det_1x.py', '_base_/det_runtime.py'
]
model = dict(backbone=_base_.backbone)
# DINO learns from images without objects too.
train_dataloader = dict(dataset=dict(filter_cfg=dict(filter_empty_gt=False)))
# mmdet's DINO gives the whole backbone a tenth of the learning rate; here the stem gets 0.85 ** 14, a tenth,
# and the last block 0.85.
optim_wrapper = dict(
    optimizer=dict(weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    paramwise_cfg=dict(decay_rate=0.85))
param_scheduler = [
    dict(type='MultiStepLR', begin=0, end=_base_.max_epochs, by_epoch=True, gamma=0.1,
         milestones=[round(_base_.max_epochs * 11 / 12)])
]
