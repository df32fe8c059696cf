# Mask2Former, CvT-13, ADE20K at 512x512, 160,000 iterations. 8 GPUs * 2 = 16 images a step, lr 1e-4 at the
# last layer.
_base_ = [
    '_base_/models/mask2former_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_160k.py', '_base_/seg_runtime.py'
]
model = dict(backbone=_base_.backbone)
# mmseg's Mask2Former gives the whole backbone a tenth of the learning rate; here the stem gets 0.85 ** 14, a
# tenth, and the last block 0.85.
optim_wrapper = dict(
    dtype='float16',  # mmcv has no deformable attention in bfloat16
    loss_scale='dynamic',
    optimizer=dict(lr=1e-4, weight_decay=0.05),
    clip_grad=dict(max_norm=0.01, norm_type=2),
    paramwise_cfg=dict(decay_rate=0.85, no_decay_keys=['query_embed', 'query_feat', 'level_embed']))
param_scheduler = [dict(type='PolyLR', eta_min=0., power=0.9, begin=0, end=_base_.max_iters, by_epoch=False)]
