# UperNet on CvT's maps of stride 4, 8 and 16, with an auxiliary head on stage 2.
_base_ = 'segmentor_cvt.py'

norm_cfg = dict(type='SyncBN', requires_grad=True)  # plain BatchNorm when not distributed
model = dict(
    decode_head=dict(
        type='UPerHead',
        in_channels=[64, 192, 384],
        in_index=[0, 1, 2],
        pool_scales=(1, 2, 3, 6),
        channels=512,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0)),
    auxiliary_head=dict(
        type='FCNHead',
        in_channels=384,
        in_index=2,
        channels=256,
        num_convs=1,
        concat_input=False,
        dropout_ratio=0.1,
        num_classes=150,
        norm_cfg=norm_cfg,
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4)),
    train_cfg=dict(),
    test_cfg=dict(mode='whole'))
