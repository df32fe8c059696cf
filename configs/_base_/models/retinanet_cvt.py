# RetinaNet as mmdet defines it, on strides 8 to 128: CvT's stages 1 and 2 and three convolved levels.
# Stage 0 has no output here: its level norm would get no gradient.
_base_ = 'mmdet::_base_/models/retinanet_r50_fpn.py'

model = dict(
    data_preprocessor=dict(non_blocking=True),  # images in pinned memory: copied while the device computes
    backbone=dict(
        _delete_=True,
        type='cvt_dense.CvT',
        out_indices=(1, 2),
        norm_eval=True),  # 2 images a GPU are too few for BatchNorm's own statistics
    neck=dict(in_channels=[192, 384], start_level=0, add_extra_convs='on_input'))
