# UperNet, CvT-13, on your own images and label maps: 8-bit PNGs whose pixels are class numbers, named like
# their images. Edit these lines; the rest follows from them.
classes = ('background', 'road')  # class 0, class 1, ...
ignore_index = 255  # pixels of this value count neither in the loss nor in the scores
data_root = 'data/mine/'
train_images, train_labels = 'images/train', 'labels/train'
val_images, val_labels = 'images/val', 'labels/val'
img_suffix, seg_map_suffix = '.jpg', '.png'
max_iters = 40000
pretrained = 'hf://microsoft/cvt-13'

# ------------------------------------------------------------------------------------------------------
# 8 GPUs * 2 = 16 images a step: lr 6e-5. One GPU: add --auto-scale-lr.
_base_ = [
    '_base_/models/upernet_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/folders.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(
    data_preprocessor=dict(seg_pad_val=ignore_index),
    backbone=dict(_base_.backbone, init_cfg=dict(type='Pretrained', checkpoint=pretrained)),
    decode_head=dict(num_classes=len(classes), ignore_index=ignore_index),
    auxiliary_head=dict(num_classes=len(classes), ignore_index=ignore_index))
dataset = dict(
    data_root=data_root,
    metainfo=dict(classes=classes),
    img_suffix=img_suffix,
    seg_map_suffix=seg_map_suffix,
    ignore_index=ignore_index)
# A crop is drawn again where one class has more than three quarters of the pixels that count.
train_pipeline = [
    dict(step, ignore_index=ignore_index) if step['type'] == 'RandomCrop' else step for step in _base_.train_pipeline
]
train_dataloader = dict(
    dataset=dict(
        data_prefix=dict(img_path=train_images, seg_map_path=train_labels), pipeline=train_pipeline, **dataset))
val_dataloader = dict(
    dataset=dict(data_prefix=dict(img_path=val_images, seg_map_path=val_labels), **dataset))
test_dataloader = val_dataloader
val_evaluator = dict(ignore_index=ignore_index)
test_evaluator = val_evaluator
val_interval, warmup = max(max_iters // 10, 1), max(max_iters // 100, 1)
train_cfg = dict(max_iters=max_iters, val_interval=val_interval)
default_hooks = dict(checkpoint=dict(interval=val_interval))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup),
    dict(type='PolyLR', eta_min=0., power=1., begin=warmup, end=max_iters, by_epoch=False)
]
