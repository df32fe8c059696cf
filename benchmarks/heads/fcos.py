# FCOS's head with mmdet's settings and an FPN on the maps of rtmdet.py, normalised as in gfl.py.
_base_ = 'gfl.py'
from mmengine.hub import get_config

stock = get_config('mmdet::fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py').model
base, neck, head = _base_.model, stock.neck, stock.bbox_head
neck.update(in_channels=[64, 128, 128], out_channels=64, start_level=0, num_outs=3)
head.update(num_classes=8, in_channels=64, feat_channels=64, stacked_convs=2, strides=[8, 16, 32],
            regress_ranges=((-1, 32), (32, 64), (64, 1e8)))
model = dict(stock, _delete_=True, backbone=base.backbone, data_preprocessor=base.data_preprocessor)
del stock, base, neck, head
