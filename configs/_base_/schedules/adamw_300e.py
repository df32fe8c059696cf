# The authors' 300 epochs: AdamW, 5 epochs of warm-up, cosine.
#
# Learning rate: 2e-3 for a total batch of 2048 images (GPUs * batch per GPU * accumulative_counts).
# It is scaled linearly to the real total batch, e.g. 8 GPUs * 256 = 2048: 2e-3; 1 GPU * 256: 2.5e-4.
# Warm-up starts at 1e-6 and the cosine ends at 1e-5, both at 2048 and scaled alike. The schedule moves
# every iteration (the authors' every epoch), and the cosine begins after the warm-up (the authors' with it).
_base_ = './adamw.py'

max_epochs = 300
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=1)
val_cfg = dict()
test_cfg = dict()

auto_scale_lr = dict(base_batch_size=2048, enable=True)
optim_wrapper = dict(optimizer=dict(lr=2e-3, eps=1e-8))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6 / 2e-3, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min_ratio=1e-5 / 2e-3, begin=5, end=max_epochs, T_max=max_epochs - 5,
         convert_to_iter_based=True)
]

# Average of the weights and BN statistics with decay 0.9999 a step of the optimizer (the usual choice at batch
# 2048; for a total batch k times smaller divide momentum by k). It warms up: the decay of step t is
# min(0.9999, t / (10 + t)). RawWeightsHook evaluates the weights that are not averaged beside it.
custom_hooks = [
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=1e-4, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
