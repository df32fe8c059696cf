# What mmseg's segmentors on CvT have in common: images of ImageNet's mean and deviation, padded to 512x512.
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
        pad_val=0,
        seg_pad_val=255,
        size=(512, 512)),
    backbone=dict(
        type='cvt_dense.CvT',
        norm_eval=True))  # 2 to 4 images a GPU are too few for BatchNorm's own statistics
