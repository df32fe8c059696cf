# Mask2Former of configs/mask2former_cvt13_ade20k.py on CvT-nano, narrower and with fewer layers, for CamVid at 360x270.
_base_ = [
    *(f'../../configs/_base_/{name}.py' for name in ('datasets/folders', 'schedules/seg_160k', 'seg_runtime')),
    'mask2former_narrow.py'
]
from mmengine.config import Config

import cvt_dense.recipes

data_root = 'data/camvid'
classes = ('Sky', 'Building', 'Pole', 'Road', 'Sidewalk', 'Tree', 'SignSymbol', 'Fence', 'Car', 'Pedestrian',
           'Bicyclist')
ignore_index = 11  # void
max_iters = 200
crop_size = (192, 256)

train_pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
train_pipeline[2].update(scale=(360, 270), ratio_range=(0.75, 1.5))
train_pipeline[3].update(crop_size=crop_size, ignore_index=ignore_index)
test_pipeline[1].scale = (360, 270)
dataset = dict(
    data_root=data_root,
    metainfo=dict(classes=classes),
    img_suffix='.png',
    seg_map_suffix='.png',
    ignore_index=ignore_index)
train_dataloader = dict(
    batch_size=4,
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='images/train', seg_map_path='annotations/train'),
        pipeline=train_pipeline,
        **dataset))
val_dataloader = dict(
    num_workers=1,
    dataset=dict(
        data_prefix=dict(img_path='images/val', seg_map_path='annotations/val'),
        pipeline=test_pipeline,
        **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ignore_index=ignore_index)
test_evaluator = val_evaluator

stock = Config.fromfile(cvt_dense.recipes.recipe('_base_/models/mask2former_cvt.py'))
stock.merge_from_dict(dict(model=dict(
    data_preprocessor=dict(seg_pad_val=ignore_index, size=crop_size),
    backbone=dict(arch='cvt-nano', norm_eval=False,
                  init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    decode_head=dict(_base_.head, num_classes=len(classes), ignore_index=ignore_index,
                     loss_cls=dict(class_weight=[1.] * len(classes) + [0.1]), train_cfg=dict(num_points=2048)))))
model = stock.model
del stock

train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=1e-3, weight_decay=0.05), clip_grad=dict(max_norm=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=50, end=max_iters)
]
default_hooks = dict(logger=dict(interval=25))
