# A small UperNet on the label maps of the generated shapes: 128x128 images, 200 iterations on a CPU.
#
#   python -m cvt_dense.shapes work_dirs/demo/data
#   python tools/train.py configs/upernet_cvt_nano_shapes.py --cfg-options \
#       model.backbone.init_cfg.type=Pretrained model.backbone.init_cfg.checkpoint=CHECKPOINT
#
# CHECKPOINT is cvt_nano_shapes.py's; without the options training starts from scratch.
_base_ = ['_base_/models/upernet_cvt.py', '_base_/seg_runtime.py', '_base_/shapes.py']

max_iters = 200
warmup_iters = min(20, max_iters / 2)
batch_size = 8
image_size = (128, 128)

# Background is 86 % of the pixels: with equal weights nothing else is predicted for hundreds of iterations.
loss_decode = dict(class_weight=[0.2] + [1.] * 8)
model = dict(
    data_preprocessor=dict(size=image_size),
    backbone=dict(_delete_=True, type='cvt_dense.CvT', arch={{_base_.arch}}),
    decode_head=dict(in_channels=[32, 64, 128], channels=48, num_classes=9, loss_decode=loss_decode),
    auxiliary_head=dict(in_channels=128, channels=32, num_classes=9, loss_decode=loss_decode))

data_root = 'work_dirs/demo/data/segmentation'
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PackSegInputs')
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs')
]
dataset = dict(
    type='BaseSegDataset',
    data_root=data_root,
    img_suffix='.png',
    seg_map_suffix='.png',
    metainfo={{_base_.label_map_metainfo}})
train_dataloader = dict(
    batch_size=batch_size,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=dict(
        data_prefix=dict(img_path='images/training', seg_map_path='annotations/training'),
        pipeline=train_pipeline,
        **dataset))
val_dataloader = dict(
    batch_size=8,
    dataset=dict(
        data_prefix=dict(img_path='images/validation', seg_map_path='annotations/validation'),
        pipeline=test_pipeline,
        **dataset))
test_dataloader = val_dataloader
del dataset
val_evaluator = dict(type='IoUMetric', iou_metrics=['mIoU'])
test_evaluator = val_evaluator

train_cfg = dict(type='IterBasedTrainLoop', max_iters=max_iters, val_interval=(max_iters + 1) // 2)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(base_batch_size=batch_size)
optim_wrapper = dict(  # for a batch of 8
    optimizer=dict(type='timm.optim.Muon', lr=6e-3, nesterov=True), clip_grad=dict(max_norm=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', power=1.0, by_epoch=False, begin=warmup_iters, end=max_iters, eta_min=0.)
]
default_hooks = dict(checkpoint=dict(interval=max(max_iters // 6, 1), max_keep_ckpts=1))
