# UperNet with a very small CvT on CamVid (11 classes, void ignored) at 360x270, from scratch, for one CPU.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/datasets/folders.py', '_base_/schedules/seg_160k.py',
    '_base_/seg_runtime.py'
]
data_root = 'data/camvid'
classes = ('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
           'Bicyclist')
ignore_index = 11  # void
max_iters = 1200
warmup_iters = min(50, max_iters / 2)
crop_size = (192, 256)

# Inverse square root of each class's fraction of the training pixels, scaled to a mean near 1: without it,
# poles, signs and pedestrians (1% of the pixels each) are never predicted.
class_weight = [0.34, 0.29, 1.44, 0.25, 0.65, 0.44, 1.3, 1.35, 0.56, 1.91, 2.47]
head = dict(
    channels=64,
    num_classes=len(classes),
    ignore_index=ignore_index,
    norm_cfg=dict(type='BN'),
    loss_decode=dict(class_weight=class_weight))
model = dict(
    data_preprocessor=dict(seg_pad_val=ignore_index, size=crop_size),
    backbone=dict(
        arch=dict(embed_dims=(32, 64, 128), depths=(1, 2, 4), num_heads=(1, 2, 4)),
        drop_path_rate=0.1,
        norm_eval=False),
    decode_head=dict(in_channels=[32, 64, 128], **head),
    auxiliary_head=dict(in_channels=128, **head))

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
tta_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(
        type='TestTimeAug',
        transforms=[
            [dict(type='Resize', scale=(360, 270), keep_ratio=True),
             dict(type='Resize', scale=(480, 360), keep_ratio=True)],
            [dict(type='RandomFlip', prob=0., direction='horizontal'),
             dict(type='RandomFlip', prob=1., direction='horizontal')],
            [dict(type='LoadAnnotations')],
            [dict(type='PackSegInputs')]
        ])
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
