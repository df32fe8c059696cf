# GFL as mmdet defines it, on strides 8 to 128: CvT's stages 1 and 2 and three convolved levels.
# Stage 0 has no output here: its level norm would get no gradient.
model = dict(
    type='GFL',
    data_preprocessor=dict(
        type='DetDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_size_divisor=32,
        non_blocking=True),
    backbone=dict(type='cvt_dense.CvT', out_indices=(1, 2), norm_eval=True),
    neck=dict(
        type='FPN', in_channels=[192, 384], out_channels=256, add_extra_convs='on_input', num_outs=5),
    bbox_head=dict(
        type='GFLHead',
        num_classes=80,
        in_channels=256,
        feat_channels=256,
        stacked_convs=4,
        anchor_generator=dict(
            type='AnchorGenerator', ratios=[1.0], octave_base_scale=8, scales_per_octave=1,
            strides=[8, 16, 32, 64, 128]),
        loss_cls=dict(type='QualityFocalLoss', use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_dfl=dict(type='DistributionFocalLoss', loss_weight=0.25),
        reg_max=16,
        loss_bbox=dict(type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(type='ATSSAssigner', topk=9), allowed_border=-1, pos_weight=-1, debug=False),
    test_cfg=dict(
        nms_pre=1000, min_bbox_size=0, score_thr=0.05, nms=dict(type='nms', iou_threshold=0.6), max_per_img=100))
