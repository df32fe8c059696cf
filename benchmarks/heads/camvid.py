# CamVid (11 classes, void ignored) at 360x270, and a schedule for one CPU.
_base_ = [f'../../configs/_base_/{name}.py' for name in ('datasets/folders', 'schedules/seg_160k', 'seg_runtime')]
data_root = 'data/camvid'
classes = ('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
           'Bicyclist')
ignore_index = 11  # void
max_iters = 1200
warmup_iters = min(50, max_iters / 2)
crop_size = (192, 256)

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(360, 270), ratio_range=(0.75, 1.5), keep_ratio=True),
    dict(type='RandomCrop', crop_size=crop_size, cat_max_ratio=0.75, ignore_index=ignore_index),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(360, 270), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs')
]
dataset = dict(
    data_root=data_root,
    metainfo=dict(classes=classes),
    img_suffix='.png',
    seg_map_suffix='.png',
    ignore_index=ignore_index)
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),
        pipeline=train_pipeline,
        **dataset))
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'),
        pipeline=test_pipeline,
        **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ignore_index=ignore_index)
test_evaluator = val_evaluator

# lr 1e-3 for 8 images a step.
auto_scale_lr = dict(base_batch_size=8)
train_cfg = dict(max_iters=max_iters, val_interval=200)
optim_wrapper = dict(optimizer=dict(lr=1e-3, weight_decay=0.05), clip_grad=dict(max_norm=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=warmup_iters, end=max_iters)
]
custom_hooks = [dict(type='cvt_dense.EMAHook', ema_type='ExponentialMovingAverage', momentum=0.01, update_buffers=True)]
default_hooks = dict(logger=dict(interval=25), checkpoint=dict(interval=200))
