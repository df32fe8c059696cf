# mmdet's Mask2Former of instances on CvT-nano, narrower and with fewer layers, for the generated shapes.
_base_ = ['../../configs/maskrcnn_cvt_nano_shapes.py', 'mask2former_narrow.py']
from mmengine.hub import get_config

max_iters = 500
num_classes = 8

stock = get_config('mmdet::mask2former/mask2former_r50_8xb2-lsj-50e_coco.py')
stock.merge_from_dict(dict(model=dict(
    data_preprocessor=dict(batch_augments=None),
    backbone=dict(_delete_=True, type='cvt_dense.CvT', arch='cvt-nano', out_indices=(0, 1, 2, 3),
                  init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano')),
    panoptic_head=dict(_base_.head, num_things_classes=num_classes,
                       loss_cls=dict(class_weight=[1.] * num_classes + [0.1])),
    panoptic_fusion_head=dict(num_things_classes=num_classes),
    train_cfg=dict(num_points=2048),
    test_cfg=dict(max_per_image=30))))
model = dict(stock.model, _delete_=True)
del stock

train_cfg = dict(max_iters=max_iters, val_interval=max_iters)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=50),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=50, end=max_iters)
]
