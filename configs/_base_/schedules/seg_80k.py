# 80,000 iterations of Semantic FPN. AdamW 1e-4 for 16 images a step (4 GPUs x 4), as for PVT.
max_iters = 80000
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=8000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

param_scheduler = [dict(type='PolyLR', eta_min=0., power=0.9, begin=0, end=max_iters, by_epoch=False)]

optim_wrapper = dict(
    type='AmpOptimWrapper',  # on a machine without a GPU tools/train.py trains in float32
    dtype='bfloat16',  # --amp fp16 for GPUs without it
    loss_scale=dict(enabled=False),  # bf16 needs none, and a scaler hides gradients that are not finite
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4),
    # decay_rate 1: one learning rate for all layers; norms, biases and CLS token without weight decay.
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.0))

# --auto-scale-lr: lr = 1e-4 * (GPUs * images a GPU) / 16
auto_scale_lr = dict(enable=False, base_batch_size=16)
