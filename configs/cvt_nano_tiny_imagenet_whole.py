# The third of the five trainings behind cvt_dense://cvt-nano, see its model card: all images of Tiny ImageNet at 64
# pixels, from the weights of cvt_nano_tiny_imagenet_finish.py. Epoch 8 was distilled further; the last two epochs learn
# blurred images of 96 pixels. It is best at 96 pixels, the size of its evaluation.
#
#   python tools/train.py configs/cvt_nano_tiny_imagenet_whole.py --data-root DIR
_base_ = 'cvt_nano_tiny_imagenet.py'
max_epochs = 10
model = dict(
    data_preprocessor=dict(mixup=dict(_delete_=True, mixup_alpha=0.2, cutmix_alpha=1.0, prob=0.3)))
train_dataloader = dict(dataset=dict(transform=dict(scale=(0.25, 1.0))))
val_dataloader = dict(dataset=dict(transform=dict(input_size=96)))
test_dataloader = dict(dataset=dict(transform=dict(input_size=96)))
train_cfg = dict(max_epochs=max_epochs, val_interval=2)
optim_wrapper = dict(optimizer=dict(lr=2e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=200, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0., begin=0, end=max_epochs, T_max=max_epochs, convert_to_iter_based=True)
]
custom_hooks = [
    dict(type='cvt_dense.ProgressiveSizeHook', sizes={0: None, 8: 96}),
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=2e-3, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
default_hooks = dict(checkpoint=dict(interval=1))
load_from = 'work_dirs/cvt_nano_tiny_imagenet_finish/epoch_2.pth'
