# Cascade Mask R-CNN as mmdet defines it, on CvT's maps of stride 4, 8 and 16; the FPN pools two more levels.
_base_ = 'mmdet::_base_/models/cascade-mask-rcnn_r50_fpn.py'

model = dict(
    data_preprocessor=dict(non_blocking=True),  # images in pinned memory: copied while the device computes
    backbone=dict(
        _delete_=True,
        type='cvt_dense.CvT',
        norm_eval=True),  # 2 images a GPU are too few for BatchNorm's own statistics
    neck=dict(in_channels=[64, 192, 384]))
