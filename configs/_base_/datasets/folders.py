# Folders of images and label maps; the config names them. Sizes and augmentation as for ADE20K.
_base_ = './ade20k.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomResize', scale=(2048, 512), ratio_range=(0.5, 2.0), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(512, 512), cat_max_ratio=0.75),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackSegInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(2048, 512), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs')
]
train_dataloader = dict(dataset=dict(type='BaseSegDataset', pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(type='BaseSegDataset', pipeline=test_pipeline, test_mode=True))
test_dataloader = val_dataloader
