# As camvid_pretraining.py, on the label maps of the demo's generated shapes. About 8 minutes on 2 cores.
#
#   python cvt_dense/recipes/shapes.py work_dirs/demo/data
#   python benchmarks/study.py configs/studies/shapes_pretraining.py --data-root work_dirs/demo/data/segmentation
_440 = [f'{key}=440' for key in ('train_cfg.max_iters', 'train_cfg.val_interval', 'param_scheduler.1.end')]
_upernet = dict(
    config='upernet_cvt_nano_shapes.py', metrics=['mIoU'], seeds=[0, 1])

members = [
    dict(name='simmim', config='simmim_cvt_nano.py',
         changes=dict(model=dict(backbone=dict(arch=dict(depths=(1, 2, 6))))),
         options=['train_dataloader.dataset.transform.input_size=128', 'train_dataloader.dataset.split=images/training',
                  'train_cfg.max_epochs=40', 'param_scheduler.1.end=40', 'param_scheduler.1.T_max=35']),
    dict(name='scratch', **_upernet, options=_440),
    dict(name='pretrained', **_upernet, options=[*_440, 'model.backbone.init_cfg.type=Pretrained'],
         weights={'model.backbone.init_cfg.checkpoint': 'simmim'}),
]
