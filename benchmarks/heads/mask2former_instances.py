# mmdet's Mask2Former of instances on CvT-nano, narrower and with fewer layers, for the generated shapes.
_base_ = '../../configs/maskrcnn_cvt_nano_shapes.py'
from mmengine.hub import get_config

max_iters = 500
width = 64
num_classes = 8

stock = get_config('mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py')
attention = dict(embed_dims=width)
ffn = dict(embed_dims=width, feedforward_channels=4 * width)
stock.merge_from_dict(dict(model=dict(
    data_preprocessor=dict(batch_augments=None),
    backbone=dict(_delete_=True, type='cvt_dense.CvT', arch='cvt-nano', out_indices=(0, 1, 2, 3),
                  init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    panoptic_head=dict(
        in_channels=[32, 64, 128, 128], feat_channels=width, out_channels=width, num_things_classes=num_classes,
        num_queries=30,
        pixel_decoder=dict(
            encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
            positional_encoding=dict(num_feats=width // 2)),
        positional_encoding=dict(num_feats=width // 2),
        transformer_decoder=dict(
            num_layers=3, layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)),
        loss_cls=dict(class_weight=[1.] * num_classes + [0.1])),
    panoptic_fusion_head=dict(num_things_classes=num_classes),
    train_cfg=dict(num_points=2048),
    test_cfg=dict(max_per_image=30))))
model = dict(stock.model, _delete_=True)
del stock, attention, ffn

train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=50, end=max_iters)
]
default_hooks = dict(checkpoint=dict(interval=max_iters))
