# AdamW in mixed precision, with one learning rate for all layers (decay_rate 1) and no weight decay of norms, biases
# and the CLS token; depth-wise convolutions do decay.
_base_ = 'bf16.py'
optim_wrapper = dict(
    optimizer=dict(type='AdamW', betas=(0.9, 0.999), weight_decay=0.05),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.))
