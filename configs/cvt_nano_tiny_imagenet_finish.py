# The second training behind cvt_dense://cvt-nano: three epochs with Mixup, CutMix, random erasing and smaller crops,
# from epoch 28 of cvt_nano_tiny_imagenet.py, which overfits the training images.
_base_ = 'cvt_nano_tiny_imagenet.py'
max_epochs = 3
model = dict(
    data_preprocessor=dict(
        random_erasing=dict(_delete_=True, probability=0.25, mode='pixel', max_count=1),
        mixup=dict(_delete_=True, mixup_alpha=0.2, cutmix_alpha=1.0, prob=0.7)))
train_dataloader = dict(dataset=dict(transform=dict(scale=(0.2, 1.0))))
train_cfg = dict(max_epochs=max_epochs, val_interval=1)
optim_wrapper = dict(optimizer=dict(lr=1e-3))
param_scheduler = [
    dict(type='CosineAnnealingLR', eta_min=0., begin=0, end=max_epochs, T_max=max_epochs, convert_to_iter_based=True)
]
# The average reaches back about 1 / momentum = 200 iterations, half an epoch.
custom_hooks = [
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=5e-3, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
default_hooks = dict(checkpoint=dict(interval=1))
load_from = 'work_dirs/cvt_nano_tiny_imagenet/epoch_28.pth'
