# Multi-scale training from DETR: short side 480 to 800, for half of the images after a random crop of 384 to 600
# pixels. In place of Resize and RandomFlip.
resize = dict(
    type='RandomChoiceResize',
    scales=[(1333, side) for side in range(480, 801, 32)],
    keep_ratio=True)
multi_scale = [
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomChoice',
        transforms=[
            [resize],
            [
                dict(
                    type='RandomChoiceResize',
                    scales=[(1333, 400), (1333, 500), (1333, 600)],
                    keep_ratio=True),
                dict(
                    type='RandomCrop',
                    crop_type='absolute_range',
                    crop_size=(384, 600),
                    allow_negative_crop=True), resize
            ],
        ]),
]
