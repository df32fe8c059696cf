# What `make demo` trains on generated pictures of shapes: a classifier from the weights in this package, then Mask
# R-CNN and UperNet from the classifier's. The study also trains both from random weights.
#
#   python benchmarks/study.py configs/studies/shapes.py --data-root work_dirs/demo/data
seeds = [0, 1]
metrics = ['accuracy/top1', 'coco/bbox_mAP', 'coco/segm_mAP', 'mIoU']
size, batch = '128x128', 4  # for the cost

_init_cfg = 'model.backbone.init_cfg'
_pretrained = dict(weights={f'{_init_cfg}.checkpoint': 'pretraining'}, options=[f'{_init_cfg}.type=Pretrained'])
members = [
    dict(name='pretraining', config='cvt_nano_shapes.py', data='classification',
         options=[f'{_init_cfg}.type=Pretrained', f'{_init_cfg}.checkpoint=cvt_dense://cvt-nano']),
    dict(name='maskrcnn', config='maskrcnn_cvt_nano_shapes.py', data='detection', **_pretrained),
    dict(name='maskrcnn_scratch', config='maskrcnn_cvt_nano_shapes.py', data='detection'),
    dict(name='upernet', config='upernet_cvt_nano_shapes.py', data='segmentation', **_pretrained),
    dict(name='upernet_scratch', config='upernet_cvt_nano_shapes.py', data='segmentation'),
]
