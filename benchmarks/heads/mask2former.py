# Mask2Former of configs/mask2former_cvt13_ade20k.py on CvT-nano, narrower and with fewer layers, for CamVid.
_base_ = 'camvid.py'
from mmengine.config import Config

import cvt_dense.recipes

max_iters = 200
width = 64
num_classes = len(_base_.classes)

stock = Config.fromfile(cvt_dense.recipes.recipe('_base_/models/mask2former_cvt.py'))
attention = dict(embed_dims=width)
ffn = dict(embed_dims=width, feedforward_channels=4 * width)
stock.merge_from_dict(dict(model=dict(
    data_preprocessor=dict(seg_pad_val=_base_.ignore_index, size=_base_.crop_size),
    backbone=dict(arch='cvt-nano', norm_eval=False,
                  init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    decode_head=dict(
        in_channels=[32, 64, 128, 128], feat_channels=width, out_channels=width, num_classes=num_classes,
        ignore_index=_base_.ignore_index, num_queries=30,
        pixel_decoder=dict(
            encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
            positional_encoding=dict(num_feats=width // 2)),
        positional_encoding=dict(num_feats=width // 2),
        transformer_decoder=dict(
            num_layers=3, layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)),
        loss_cls=dict(class_weight=[1.] * num_classes + [0.1]),
        train_cfg=dict(num_points=2048)))))
model = stock.model
del stock, attention, ffn

train_dataloader = dict(batch_size=4)
train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=50, end=max_iters)
]
default_hooks = dict(checkpoint=dict(interval=max_iters))
custom_hooks = []  # no average of the weights of so few iterations
