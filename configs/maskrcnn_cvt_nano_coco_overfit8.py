# A check of the whole detection chain, not a recipe: a very small Mask R-CNN overfits 8 COCO training images
# (22 objects), from scratch at 192 pixels, and is evaluated on those 8.
_base_ = [
    '_base_/models/maskrcnn_cvt.py', '_base_/datasets/coco_instance.py', '_base_/schedules/det_1x.py',
    '_base_/det_runtime.py'
]
indices = [4, 6, 14, 15, 17, 21, 22, 23]  # images with 1 to 7 objects each
max_iters = 500
warmup_iters = min(20, max_iters / 2)

model = dict(
    # One square for all: an image that is memorised must look the same alone as in a padded batch.
    data_preprocessor=dict(pad_size_divisor=192),
    backbone=dict(
        arch=dict(embed_dims=(32, 64, 128), depths=(1, 2, 4), num_heads=(1, 2, 4)),
        drop_path_rate=0.,
        norm_eval=False),
    neck=dict(in_channels=[32, 64, 128], out_channels=64, norm_cfg=dict(type='BN')),
    rpn_head=dict(in_channels=64, feat_channels=64),
    roi_head=dict(
        bbox_roi_extractor=dict(out_channels=64),
        bbox_head=dict(in_channels=64, fc_out_channels=256, reg_class_agnostic=True),
        mask_roi_extractor=dict(roi_layer=dict(output_size=7), out_channels=64),
        mask_head=dict(in_channels=64, conv_out_channels=64, num_convs=2, class_agnostic=True)),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=64)),
        rpn_proposal=dict(nms_pre=200, max_per_img=64),
        rcnn=dict(sampler=dict(num=64), mask_size=14)),
    test_cfg=dict(rpn=dict(nms_pre=200, max_per_img=64)))

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='Resize', scale=(192, 192), keep_ratio=True),
    dict(type='PackDetInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(192, 192), keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    # 'instances': without an annotation file the metric takes the objects of these 8 images from here.
    dict(type='PackDetInputs',
         meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor', 'instances'))
]
train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    sampler=dict(_delete_=True, type='InfiniteSampler'),
    batch_sampler=None,
    dataset=dict(indices=indices, pipeline=train_pipeline))
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        indices=indices,
        ann_file='annotations/instances_train2017.json',
        data_prefix=dict(img='train2017/'),
        pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file=None)
test_evaluator = val_evaluator

train_cfg = dict(_delete_=True, type='IterBasedTrainLoop', max_iters=max_iters, val_interval=100)
optim_wrapper = dict(optimizer=dict(lr=1e-3), clip_grad=dict(max_norm=10.))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', eta_min=0., by_epoch=False, begin=warmup_iters, end=max_iters)
]
default_hooks = dict(
    logger=dict(interval=10, log_metric_by_epoch=False), checkpoint=dict(by_epoch=False, interval=100))
log_processor = dict(by_epoch=False)
