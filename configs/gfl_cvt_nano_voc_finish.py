# The second training behind cvt_dense://cvt-nano-voc: larger crops and a falling learning rate, from the averaged
# weights of gfl_cvt_nano_voc.py.
_base_ = 'gfl_cvt_nano_voc.py'
max_iters = 1900
train_dataloader = dict(dataset=dict(pipeline=[
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='RandomResize', scale=(320, 320), ratio_range=(0.6, 1.6), keep_ratio=True),
    dict(type='RandomCrop', crop_size=(256, 256), allow_negative_crop=True),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs')]))
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=4e-3))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=1., by_epoch=False, begin=50, end=max_iters)]
load_from = 'work_dirs/gfl_cvt_nano_voc/iter_3500.pth'
