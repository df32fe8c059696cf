# UperNet on small CamVid at a short schedule: from scratch, and from masked pretraining on the same images without
# their labels. About 25 minutes on 2 cores.
#
#   python benchmarks/study.py configs/studies/camvid_pretraining.py --data-root DIR   DIR as upernet_cvt_nano_camvid's
_400 = ['train_cfg.max_iters=400', 'param_scheduler.1.end=400']
_upernet = dict(
    config='upernet_cvt_nano_camvid.py', metrics=['mIoU'], seeds=[0, 1],
    changes=dict(model=dict(backbone=dict(with_cls_token=False))))

members = [
    dict(name='simmim', config='simmim_cvt_nano.py'),
    dict(name='scratch', **_upernet, options=_400),
    dict(name='pretrained', **_upernet, options=[*_400, 'model.backbone.init_cfg.type=Pretrained'],
         weights={'model.backbone.init_cfg.checkpoint': 'simmim'}),
]
