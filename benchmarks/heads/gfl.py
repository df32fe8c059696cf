# GFL's head with mmdet's settings and an FPN on the maps of rtmdet.py.
_base_ = 'rtmdet.py'
from mmengine.hub import get_config

stock = get_config('mmdet::gfl/gfl_r50_fpn_1x_coco.py').model
backbone, neck, head = _base_.model.backbone, stock.neck, stock.bbox_head
neck.update(in_channels=[64, 128, 128], out_channels=64, start_level=0, num_outs=3)
head.update(num_classes=8, in_channels=64, feat_channels=64, stacked_convs=2)
head.anchor_generator.strides = [8, 16, 32]
model = dict(stock, _delete_=True, backbone=backbone)
del stock, backbone, neck, head
