# CvT-nano, pretrained without labels on a folder of images, on a CPU. A template with arch = 'cvt-nano' starts from it
# with pretrained = 'work_dirs/simmim_cvt_nano/epoch_150.pth'.
#
#   python tools/train.py configs/simmim_cvt_nano.py --data-root DIR        all images below DIR/images/train
#
# For all images below DIR, and for images smaller than 192 pixels: --cfg-options train_dataloader.dataset.split= \
#     train_dataloader.dataset.transform.input_size=128
batch_size = 8
max_epochs = 150
warmup_epochs = min(5, max_epochs / 2)

_base_ = ['_base_/models/simmim_cvt.py', '_base_/datasets/imagenet_unlabelled.py', '_base_/cls_runtime.py']

model = dict(backbone=dict(arch='cvt-nano'))
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=1,
    dataset=dict(
        data_root='data/camvid', split='images/train', transform=dict(input_size=192, scale=(0.3, 1.0))))
train_cfg = dict(by_epoch=True, max_epochs=max_epochs)
# lr 1e-3 for 8 images a step.
auto_scale_lr = dict(base_batch_size=8, enable=True)
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-3, weight_decay=0.05),
    clip_grad=dict(max_norm=5.),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1., no_decay_keys=['mask_token']))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min_ratio=1e-2, begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
custom_hooks = [dict(type='cvt_dense.BatchNormStatisticsHook')]
default_hooks = dict(checkpoint=dict(interval=50, save_best=None))
