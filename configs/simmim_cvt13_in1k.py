# CvT-13 pretrained without labels by SimMIM, 100 epochs at 192x192. The images may lie at any depth of a folder:
#
#   tools/dist_train.sh configs/simmim_cvt13_in1k.py 8 --data-root DIR        all images below DIR/train
#
# Learning rate: 4e-4 for a total batch of 2048 images, as SimMIM's 1e-4 for 512; scaled to the real one. The last
# checkpoint starts a detector, a segmentor or a classifier of averaged maps: with_cls_token=False and
# init_cfg=dict(type='Pretrained', checkpoint='work_dirs/simmim_cvt13_in1k/epoch_100.pth') of its backbone.
_base_ = ['_base_/models/simmim_cvt.py', '_base_/datasets/imagenet_unlabelled.py', '_base_/schedules/adamw_300e.py',
          '_base_/cls_runtime.py']
max_epochs = 100
warmup_epochs = min(10, max_epochs / 2)

train_cfg = dict(max_epochs=max_epochs)
optim_wrapper = dict(
    optimizer=dict(lr=4e-4), paramwise_cfg=dict(no_decay_keys=['mask_token']), clip_grad=dict(max_norm=5.))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min_ratio=1e-2, begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
custom_hooks = [dict(type='cvt_dense.BatchNormStatisticsHook')]
default_hooks = dict(checkpoint=dict(save_best=None))
val_cfg = test_cfg = None
