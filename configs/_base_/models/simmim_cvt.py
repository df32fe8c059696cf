# SimMIM: 60 % of an image's squares of 32x32 pixels are hidden and reconstructed from the rest.
model = dict(
    type='cvt_dense.MaskedImageModel',
    backbone=dict(type='cvt_dense.CvT', arch='cvt-13'),
    mask_ratio=0.6,
    mask_unit=32,
    data_preprocessor=dict(
        type='cvt_dense.ClassificationPreprocessor', mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375]))
