# The first training of each pair behind cvt_dense://cvt-nano-voc, see its model card: GFL, CvT-nano with windows,
# small images of Pascal VOC 2007, on one CPU core.
_base_ = ['_base_/models/gfl_cvt.py', '_base_/schedules/det_1x.py', '_base_/det_runtime.py']
import cvt_dense.recipes.templates as templates

classes = (
    'aeroplane', 'bicycle', 'bird', 'boat', 'bottle', 'bus', 'car', 'cat', 'chair', 'cow', 'diningtable', 'dog',
    'horse', 'motorbike', 'person', 'pottedplant', 'sheep', 'sofa', 'train', 'tvmonitor')
data_root = 'data/voc2007/'
max_iters = 3500

model = templates.one_stage(classes, 'cvt-nano', 'cvt_dense://cvt-nano')
model['backbone']['drop_path_rate'] = 0.05
model['test_cfg'] = dict(nms=dict(iou_threshold=0.5))  # GFL's 0.6 keeps several of the loose boxes

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(240, 240), ratio_range=(0.6, 1.6), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(192, 192), allow_negative_crop=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(320, 320), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))]
dataset = dict(type='CocoDataset', data_root=data_root, metainfo=dict(classes=classes))
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(dataset, ann_file='annotations/train.json', data_prefix=dict(img='train/'),
                 filter_cfg=dict(filter_empty_gt=True), pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=1,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(dataset, ann_file='annotations/val.json', data_prefix=dict(img='val/'), test_mode=True,
                 pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='CocoMetric', ann_file=data_root + 'annotations/val.json', metric='bbox')
test_evaluator = val_evaluator

train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters, val_interval=1000)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=200),
    dict(type='ConstantLR', factor=1., by_epoch=False, begin=200, end=max_iters)]
optim_wrapper = dict(
    _delete_=True, type='OptimWrapper', clip_grad=dict(max_norm=10.),
    optimizer=dict(type='timm.optim.Muon', lr=6e-3, nesterov=True, weight_decay=0.01))
custom_hooks = [dict(
    type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=2e-3, gamma=10, update_buffers=True)]
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=500, save_best='coco/bbox_mAP_50', max_keep_ckpts=1))
auto_scale_lr = dict(base_batch_size=8)
log_processor = dict(by_epoch=False)
