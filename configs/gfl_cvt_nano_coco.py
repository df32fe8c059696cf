# The network of cvt_dense://cvt-nano-coco, see its model card: GFL, CvT-nano with windows, small images of COCO 2017.
# benchmarks/distil_detector.py has trained the published weights.
_base_ = ['_base_/models/gfl_cvt.py', '_base_/datasets/coco_detection.py', '_base_/schedules/det_1x.py',
          '_base_/det_runtime.py']
import cvt_dense.recipes.templates as templates

max_iters = 3500

model = templates.one_stage(('object', ), 'cvt-nano', 'published')
model['bbox_head']['num_classes'] = 80
load_from = templates.published_detector('cvt-nano', 'published')
model['backbone']['drop_path_rate'] = 0.05
model['test_cfg'] = dict(nms=dict(iou_threshold=0.5))  # GFL's 0.6 keeps several of the loose boxes

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(320, 320), ratio_range=(0.6, 1.6), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(256, 256), allow_negative_crop=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')]
_base_.test_pipeline[1].update(scale=(320, 320))  # Resize
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    sampler=dict(_delete_=True, type='InfiniteSampler', shuffle=True),
    batch_sampler=None,
    dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader

train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters, val_interval=max_iters)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=100),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=100, end=max_iters)]
optim_wrapper = dict(
    _delete_=True, type='OptimWrapper', clip_grad=dict(max_norm=10.),
    optimizer=dict(type='timm.optim.Muon', lr=6e-4, nesterov=True, weight_decay=0.01))
custom_hooks = [dict(
    type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=2e-3, gamma=10, update_buffers=True)]
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=500, save_best='coco/bbox_mAP', max_keep_ckpts=1))
auto_scale_lr = dict(base_batch_size=8)
log_processor = dict(by_epoch=False)
