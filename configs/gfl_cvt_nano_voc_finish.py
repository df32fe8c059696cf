# The second training of each pair behind cvt_dense://cvt-nano-voc: larger crops, a falling learning rate, from the
# averaged weights of gfl_cvt_nano_voc.py.
_base_ = 'gfl_cvt_nano_voc.py'
max_iters = 1900
_base_.train_pipeline[2].update(scale=(320, 320))  # RandomResize
_base_.train_pipeline[3].update(crop_size=(256, 256))  # RandomCrop
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=4e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=50, end=max_iters)]
load_from = 'work_dirs/gfl_cvt_nano_voc/iter_3500.pth'
