# Semantic FPN on CvT's maps of stride 4, 8 and 16; the FPN pools a fourth level.
_base_ = 'segmentor_cvt.py'

norm_cfg = dict(type='SyncBN', requires_grad=True)  # plain BatchNorm when not distributed
model = dict(
    neck=dict(type='FPN', in_channels=[64, 192, 384], out_channels=256, num_outs=4),
    decode_head=dict(
        type='FPNHead',
        in_channels=[256, 256, 256, 256],
        in_index=[0, 1, 2, 3],
        feature_strides=[4, 8, 16, 32],
        channels=128,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
