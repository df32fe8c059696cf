# COCO 2017 with boxes only, trained at several scales.
_base_ = ['coco_detection.py', 'multi_scale.py']

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    *_base_.multi_scale,
    dict(type='PackDetInputs')
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
