# RTMDet's neck and head, with mmdet's settings, on CvT-nano's maps of stride 8, 16 and 32, for the generated shapes.
_base_ = '../../configs/maskrcnn_cvt_nano_shapes.py'
from mmengine.hub import get_config

max_iters = 240
width = 64

stock = get_config('mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py')
stock.merge_from_dict(dict(model=dict(
    backbone=dict(_delete_=True, type='cvt_dense.CvT', arch='cvt-nano', out_indices=(1, 2, 3),
                  init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    neck=dict(in_channels=[64, 128, 128], out_channels=width),
    bbox_head=dict(num_classes=8, in_channels=width, feat_channels=width))))
model = dict(stock.model, _delete_=True)
del stock

train_pipeline = _base_.train_pipeline
train_pipeline[1].with_mask = False
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
param_scheduler = _base_.param_scheduler
param_scheduler[1].end = max_iters
val_evaluator = dict(metric='bbox')
test_evaluator = val_evaluator
