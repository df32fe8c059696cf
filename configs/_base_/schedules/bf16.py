# Mixed precision of recipes for GPUs, unless they set float16; without a GPU, tools/train.py trains in float32.
optim_wrapper = dict(
    type='AmpOptimWrapper',
    dtype='bfloat16',  # --amp fp16 for GPUs without it
    loss_scale=dict(enabled=False))  # bf16 needs none, and a scaler hides gradients that are not finite
