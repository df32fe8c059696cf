# A small Mask R-CNN on the COCO files of the generated shapes: 128x128 images, 250 iterations on a CPU.
#
#   python -m cvt_dense.shapes work_dirs/demo/data
#   python tools/train.py configs/maskrcnn_cvt_nano_shapes.py --cfg-options \
#       model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=CHECKPOINT
#
# CHECKPOINT is cvt_nano_shapes.py's; without the options training starts from scratch.
_base_ = ['_base_/models/maskrcnn_cvt.py', '_base_/det_runtime.py', '_base_/shapes.py']

max_iters = 250
warmup_iters = min(50, max_iters / 2)
batch_size = 8
image_size = (128, 128)

channels = 64  # of the FPN and both heads
strides = [4, 8, 16]
roi_extractor = dict(out_channels=channels, featmap_strides=strides, finest_scale=24)
model = dict(
    backbone=dict(_delete_=True, type='cvt_dense.CvT', arch={{_base_.arch}}),
    neck=dict(
        in_channels=[32, 64, 128],
        out_channels=channels,
        num_outs=3,
        norm_cfg=dict(type='BN')),
    rpn_head=dict(
        in_channels=channels,
        feat_channels=channels,
        # Squares of 16 to 90 pixels: shapes are 20 to 56 across.
        anchor_generator=dict(scales=[4, 5.6], ratios=[1.0], strides=strides)),
    roi_head=dict(
        bbox_roi_extractor=roi_extractor,
        bbox_head=dict(in_channels=channels, fc_out_channels=256, num_classes=8, reg_class_agnostic=True),
        mask_roi_extractor=dict(roi_layer=dict(output_size=7), **roi_extractor),
        mask_head=dict(
            in_channels=channels, conv_out_channels=channels, num_convs=2, num_classes=8,
            class_agnostic=True)),
    train_cfg=dict(
        rpn=dict(sampler=dict(num=64)),
        rpn_proposal=dict(nms_pre=200, max_per_img=64),
        rcnn=dict(sampler=dict(num=32), mask_size=14)),
    test_cfg=dict(
        rpn=dict(nms_pre=200, max_per_img=64),
        rcnn=dict(max_per_img=30)))

data_root = 'work_dirs/demo/data/detection'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackDetInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=image_size, keep_ratio=True),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='PackDetInputs', meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'))
]
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file='annotations/instances_train.json',
        data_prefix=dict(img='train/'),
        metainfo={{_base_.metainfo}},
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=8,
    dataset=dict(
        type='CocoDataset',
        data_root=data_root,
        ann_file='annotations/instances_val.json',
        data_prefix=dict(img='val/'),
        metainfo={{_base_.metainfo}},
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(
    type='CocoMetric', ann_file=data_root + '/annotations/instances_val.json', metric=['bbox', 'segm'])
test_evaluator = val_evaluator

train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=(max_iters + 1) // 2)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(base_batch_size=batch_size)
optim_wrapper = dict(optimizer=dict(lr=2e-3), clip_grad=dict(max_norm=10.))  # for a batch of 8
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=warmup_iters, end=max_iters, eta_min=1e-5)
]
default_hooks = dict(
    logger=dict(log_metric_by_epoch=False),
    checkpoint=dict(by_epoch=False, interval=max(max_iters // 7, 1), max_keep_ckpts=1))
log_processor = dict(by_epoch=False)
