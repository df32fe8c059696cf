# What `make demo` trains on generated pictures of shapes: a classifier, then Mask R-CNN and UperNet, each with its
# weights and from scratch. About 13 minutes on 2 cores.
#
#   python tools/study.py configs/studies/shapes.py --data-root work_dirs/demo/data
seeds = [0]
metrics = ['accuracy/top1', 'coco/bbox_mAP', 'coco/segm_mAP', 'mIoU']
size, batch = '128x128', 4  # for the cost

_pretrained = dict(
    weights={'model.backbone.init_cfg.checkpoint': 'pretraining'}, options=['model.backbone.init_cfg.type=Pretrained'])
members = [
    dict(name='pretraining', config='cvt_nano_shapes.py', data='classification'),
    dict(name='maskrcnn_pretrained', config='maskrcnn_cvt_nano_shapes.py', data='detection', **_pretrained),
    dict(name='maskrcnn_scratch', config='maskrcnn_cvt_nano_shapes.py', data='detection'),
    dict(name='upernet_pretrained', config='upernet_cvt_nano_shapes.py', data='segmentation', **_pretrained),
    dict(name='upernet_scratch', config='upernet_cvt_nano_shapes.py', data='segmentation'),
]
