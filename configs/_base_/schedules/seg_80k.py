# 80,000 iterations of Semantic FPN. AdamW 1e-4 for 16 images a step (4 GPUs x 4), as for PVT.
_base_ = './adamw.py'

max_iters = 80000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=8000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

param_scheduler = [dict(type='PolyLR', eta_min=0., power=0.9, begin=0, end=max_iters, by_epoch=False)]

optim_wrapper = dict(optimizer=dict(lr=1e-4, weight_decay=1e-4))

# --auto-scale-lr: lr = 1e-4 * (GPUs * images a GPU) / 16
auto_scale_lr = dict(enable=False, base_batch_size=16)
