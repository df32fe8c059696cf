# Cascade Mask R-CNN with the heads of configs/maskrcnn_cvt_nano_shapes.py, for the generated shapes.
_base_ = '../../configs/maskrcnn_cvt_nano_shapes.py'
import copy

heads, rcnn = copy.deepcopy(_base_.model.roi_head), copy.deepcopy(_base_.model.train_cfg.rcnn)
heads.update(_delete_=True, type='CascadeRoIHead', num_stages=3, stage_loss_weights=[1., 0.5, 0.25])
heads.bbox_head = [dict(heads.bbox_head, bbox_coder=dict(
    type='DeltaXYWHBBoxCoder', target_stds=[std, std, 2 * std, 2 * std])) for std in (0.1, 0.05, 0.033)]
stages = []
for iou in (0.5, 0.6, 0.7):
    stages.append(copy.deepcopy(rcnn))
    stages[-1].assigner.update(pos_iou_thr=iou, neg_iou_thr=iou, min_pos_iou=iou, match_low_quality=False)
model = dict(
    type='CascadeRCNN',
    backbone=dict(init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    roi_head=heads,
    train_cfg=dict(rcnn=stages))
del heads, rcnn, stages
