# COCO 2017 with boxes and masks, trained at several scales.
_base_ = ['coco_instance.py', 'multi_scale.py']

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    *_base_.multi_scale,
    dict(type='PackDetInputs')
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
