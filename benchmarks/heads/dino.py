# DINO of configs/dino_cvt13_coco.py on CvT-nano, narrower and with fewer layers, for the generated shapes.
_base_ = 'rtmdet.py'
from mmengine.config import Config

import cvt_dense.recipes

max_iters = 400
width = 128

stock = Config.fromfile(cvt_dense.recipes.recipe('dino_cvt13_coco.py'))
layer = dict(self_attn_cfg=dict(embed_dims=width), ffn_cfg=dict(embed_dims=width, feedforward_channels=256))
stock.merge_from_dict(dict(model=dict(
    num_queries=40,
    backbone=dict(_base_.model.backbone, _delete_=True),
    neck=dict(in_channels=[64, 128, 128], out_channels=width),
    encoder=dict(num_layers=2, layer_cfg=layer),
    decoder=dict(num_layers=3, layer_cfg=dict(layer, cross_attn_cfg=dict(embed_dims=width))),
    positional_encoding=dict(num_feats=width // 2),
    bbox_head=dict(num_classes=8, embed_dims=width),
    dn_cfg=dict(group_cfg=dict(num_dn_queries=30)),
    test_cfg=dict(max_per_img=30))))
model = dict(stock.model, _delete_=True)
del stock, layer

train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
optim_wrapper = dict(optimizer=dict(lr=5e-4, weight_decay=1e-4), clip_grad=dict(max_norm=0.1),
                     paramwise_cfg=dict(decay_rate=0.85))
param_scheduler = _base_.param_scheduler
param_scheduler[1].update(end=max_iters, eta_min=1e-6)
