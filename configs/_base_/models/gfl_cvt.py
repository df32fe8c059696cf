# GFL as mmdet defines it, on RetinaNet's levels: CvT's stages 1 and 2 and three convolved levels, strides 8 to 128.
_base_ = 'retinanet_cvt.py'

model = dict(
    type='GFL',
    bbox_head=dict(
        type='GFLHead',
        anchor_generator=dict(ratios=[1.0], octave_base_scale=8, scales_per_octave=1),
        bbox_coder=dict(_delete_=True, type='DistancePointBBoxCoder'),
        loss_cls=dict(_delete_=True, type='QualityFocalLoss', use_sigmoid=True, beta=2.0, loss_weight=1.0),
        loss_bbox=dict(_delete_=True, type='GIoULoss', loss_weight=2.0)),
    train_cfg=dict(assigner=dict(_delete_=True, type='ATSSAssigner', topk=9)),
    test_cfg=dict(nms=dict(iou_threshold=0.6)))
