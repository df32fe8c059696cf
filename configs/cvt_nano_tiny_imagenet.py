# The first of the five trainings behind cvt_dense://cvt-nano, see its model card: CvT-nano on an excerpt of Tiny
# ImageNet, 200 classes of 64x64 photographs in <data_root>/{train,val}/<class>/*, from scratch on one core of a CPU.
#
#   python tools/train.py configs/cvt_nano_tiny_imagenet.py --data-root DIR
#   python tools/train.py configs/cvt_nano_tiny_imagenet_finish.py --data-root DIR
#
# Small images come first and large ones later, which gives a core a third more epochs in the same time.
num_classes = 200
batch_size = 128  # in total; the learning rate is for this and scales with it
max_epochs = 30
warmup_epochs = min(2, max_epochs / 2)

_base_ = ['_base_/models/cvt_classifier.py', '_base_/datasets/imagenet_224.py', '_base_/cls_runtime.py']

model = dict(
    backbone=dict(arch='cvt-nano', out_type='avg_featmap'),
    num_classes=num_classes,
    data_preprocessor=dict(random_erasing=None, mixup=None))

data_root = 'data/tiny_imagenet'
train_transform = dict(
    _delete_=True, input_size=64, is_training=True, scale=(0.35, 1.0), interpolation='bicubic', color_jitter=None)
val_transform = dict(input_size=64, interpolation='bicubic', crop_pct=1.0)
loader = dict(batch_size=batch_size, num_workers=2)
train_dataloader = dict(**loader, dataset=dict(data_root=data_root, transform=train_transform))
val_dataloader = dict(**loader, dataset=dict(data_root=data_root, transform=val_transform))
test_dataloader = val_dataloader

train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=2)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(base_batch_size=128, enable=True)
# Muon for matrices, AdamW for the rest; both at the learning rate that AdamW would have.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='timm.optim.Muon', lr=3e-3, weight_decay=0.05, nesterov=True, ns_coefficients='original'),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0., begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
# The average reaches back about 1 / momentum = 500 iterations, one and a third epochs of 48000 images.
custom_hooks = [
    dict(type='cvt_dense.ProgressiveSizeHook', sizes={0: 32, 12: 48, 23: None}),
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=2e-3, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
default_hooks = dict(checkpoint=dict(interval=2))
