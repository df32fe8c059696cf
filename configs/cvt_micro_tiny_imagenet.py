# The training behind cvt_dense://cvt-micro: all of Tiny ImageNet, 200 classes of 64x64 photographs in
# <data_root>/{train,val}/<class>/*, from scratch on one core of a CPU.
#
#   python tools/train.py configs/cvt_micro_tiny_imagenet.py --data-root DIR
_base_ = 'cvt_nano_tiny_imagenet.py'
max_epochs = 19
warmup_epochs = 1
model = dict(backbone=dict(arch='cvt-micro'))
train_cfg = dict(max_epochs=max_epochs, val_interval=3)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=0., begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
custom_hooks = [
    dict(type='cvt_dense.ProgressiveSizeHook', sizes={0: 32, 9: 48, 14: None}),
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=2e-3, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
    dict(type='cvt_dense.UnreadableImagesHook', max_share=0.05),
]
default_hooks = dict(checkpoint=dict(interval=1))
