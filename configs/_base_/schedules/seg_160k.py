# 160,000 iterations. AdamW 6e-5 for 16 images a step (8 GPUs x 2), as for Swin; see auto_scale_lr.
_base_ = './adamw.py'

max_iters = 160000
warmup_iters = min(1500, max_iters / 2)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=16000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', eta_min=0., power=1., begin=warmup_iters, end=max_iters, by_epoch=False)
]

optim_wrapper = dict(optimizer=dict(lr=6e-5, weight_decay=0.01))

# --auto-scale-lr: lr = 6e-5 * (GPUs * images a GPU) / 16
auto_scale_lr = dict(enable=False, base_batch_size=16)
