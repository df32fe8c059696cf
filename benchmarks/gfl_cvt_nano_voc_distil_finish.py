# The tenth and, with 30 % of mosaics, the eleventh training behind cvt_dense://cvt-nano-voc: larger crops, a falling
# learning rate.
_base_ = 'gfl_cvt_nano_voc_distil.py'
max_iters = 3500
load_from = 'work_dirs/ninth/iter_7500.pth'
side = 320
jitter, mosaic = _base_.train_pipeline[2].transforms
jitter[0].update(scale=(side, side), ratio_range=(0.6, 1.7))
mosaic[0].update(img_scale=(side, side))
mosaic[1].update(scale=(2 * side, 2 * side))
_base_.train_pipeline[2].update(prob=[1., 0.])
_base_.train_pipeline[3].update(crop_size=(256, 256))
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=3.5e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=50, end=max_iters)]
randomness = dict(seed=4)
