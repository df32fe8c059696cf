# CvT-nano on the class folders of the generated shapes: 8 classes, 64x64 images, 2 epochs on a CPU.
#
#   python -m cvt_dense.shapes work_dirs/demo/data
#   python tools/train.py configs/cvt_nano_shapes.py --cfg-options \
#       model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=cvt_dense://cvt-nano
#
# Without the options training starts from scratch, for which 2 epochs are few.
_base_ = ['_base_/cls_runtime.py', '_base_/shapes.py']

max_epochs = 2
warmup_epochs = min(1, max_epochs / 2)
batch_size = 32
image_size = 64

model = dict(
    type='cvt_dense.ImageClassifier',
    backbone=dict(
        type='cvt_dense.CvT',
        arch={{_base_.arch}},
        # Not the CLS token: it leaves the last block's map tokens untrained, which detection and segmentation need.
        out_type='avg_featmap'),
    num_classes=8,
    data_preprocessor=dict(
        type='cvt_dense.ClassificationPreprocessor',
        label_smoothing=0.1))

data_root = 'work_dirs/demo/data/classification'
train_dataloader = dict(
    batch_size=batch_size,
    drop_last=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='cvt_dense.SeededSampler', shuffle=True),
    dataset=dict(
        type='cvt_dense.ImageDataset',
        data_root=data_root,
        split='train',
        transform=dict(
            input_size=image_size, is_training=True, scale=(0.7, 1.0), ratio=(0.9, 1.1), hflip=0.5,
            color_jitter=None, interpolation='bilinear')))
val_dataloader = dict(
    batch_size=100,
    collate_fn=dict(type='default_collate'),
    dataset=dict(
        type='cvt_dense.ImageDataset',
        data_root=data_root,
        split='val',
        transform=dict(input_size=image_size, crop_pct=1.0, interpolation='bilinear')))
test_dataloader = val_dataloader
val_evaluator = dict(type='cvt_dense.Accuracy')
test_evaluator = val_evaluator

train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=1)
val_cfg = dict()
test_cfg = dict()
optim_wrapper = dict(optimizer=dict(lr=2e-3))  # for a batch of 32
auto_scale_lr = dict(base_batch_size=32, enable=True)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-2, begin=0, end=warmup_epochs, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=warmup_epochs, end=max_epochs,
         T_max=max_epochs - warmup_epochs, convert_to_iter_based=True)
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1, save_best=None))
custom_hooks = [
    dict(type='cvt_dense.EMAHook', ema_type='MomentumAnnealingEMA', momentum=1e-2, gamma=10, update_buffers=True),
    dict(type='cvt_dense.RawWeightsHook'),
]
