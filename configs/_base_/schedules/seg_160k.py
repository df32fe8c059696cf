# 160,000 iterations. AdamW 6e-5 for 16 images a step (8 GPUs x 2), as for Swin; see auto_scale_lr.
max_iters = 160000
warmup_iters = min(1500, max_iters / 2)
train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=16000)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', eta_min=0., power=1., begin=warmup_iters, end=max_iters, by_epoch=False)
]

optim_wrapper = dict(
    type='AmpOptimWrapper',  # on a machine without a GPU tools/train.py trains in float32
    dtype='bfloat16',  # --amp fp16 for GPUs without it
    loss_scale=dict(enabled=False),  # bf16 needs none, and a scaler hides gradients that are not finite
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    # decay_rate 1: one learning rate for all layers; norms, biases and CLS token without weight decay.
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.0))

# --auto-scale-lr: lr = 6e-5 * (GPUs * images a GPU) / 16
auto_scale_lr = dict(enable=False, base_batch_size=16)
