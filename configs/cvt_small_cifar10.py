# A small CvT, wider and shallower than CvT-nano, for folders of 32x32 images, <data_root>/{train,val}/<class>/*, from
# scratch on a CPU.
#
#   python tools/train.py configs/cvt_small_cifar10.py --data-root DIR
#
# Three stages at stride 2 each (maps of 16, 8 and 4), light augmentation: RandAugment's heavy
# distortions and small crops hurt images this small.
num_classes = 10
batch_size = 64  # in total; the learning rate is for this and scales with it
max_epochs = 60
warmup_epochs = min(3, max_epochs / 2)

_base_ = ['_base_/models/cvt_classifier.py', '_base_/datasets/imagenet_224.py', '_base_/cls_runtime.py']

model = dict(
    backbone=dict(
        arch=dict(
            _delete_=True,
            embed_dims=[48, 96, 192],
            depths=[1, 2, 2],
            num_heads=[1, 2, 4],
            patch_sizes=3,
            patch_strides=2,
            patch_paddings=1,
            drop_path_rates=[0., 0., 0.05])),
    num_classes=num_classes,
    data_preprocessor=dict(
        random_erasing=None,
        mixup=dict(mixup_alpha=0.2, cutmix_alpha=1.0, prob=0.5)))

data_root = 'data/cifar10'
train_transform = dict(
    _delete_=True, input_size=32, is_training=True, scale=(0.5, 1.0), interpolation='bilinear',
    color_jitter=None)
val_transform = dict(input_size=32, interpolation='bilinear', crop_pct=1.0)
loader = dict(batch_size=batch_size, num_workers=2)
train_dataloader = dict(**loader, dataset=dict(data_root=data_root, transform=train_transform))
val_dataloader = dict(**loader, dataset=dict(data_root=data_root, transform=val_transform))
test_dataloader = val_dataloader

train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=5)
val_cfg = dict()
test_cfg = dict()
auto_scale_lr = dict(base_batch_size=64, enable=True)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min_ratio=1e-2, begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
# The average reaches back about 1 / momentum = 200 iterations, two and a half epochs of 5000 images.
custom_hooks = [
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=5e-3, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
default_hooks = dict(checkpoint=dict(interval=5))
