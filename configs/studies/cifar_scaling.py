# Three widths and three depths of a small CvT at equal steps, from scratch on small CIFAR-10 for one epoch.
#
#   python benchmarks/study.py configs/studies/cifar_scaling.py --data-root DIR   DIR has {train,val}/<class>/*
config = 'cvt_nano_cifar10.py'
options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=32',
           'auto_scale_lr.base_batch_size=32', 'param_scheduler.0.end=0.25', 'param_scheduler.1.begin=0.25',
           'param_scheduler.1.end=1', 'param_scheduler.1.T_max=0.75', 'default_hooks.checkpoint.interval=1']
metrics = ['accuracy/top1']
seeds = [0, 1]


def _member(name, width, depths):
    arch = dict(embed_dims=[width, 2 * width, 4 * width], depths=depths)
    return dict(name=name, changes=dict(model=dict(backbone=dict(arch=arch)), custom_hooks=[]))


members = [_member('width_32_depth_3', 32, [1, 1, 1]), _member('width_16_depth_3', 16, [1, 1, 1]),
           _member('width_48_depth_3', 48, [1, 1, 1]), _member('width_32_depth_5', 32, [1, 2, 2]),
           _member('width_32_depth_9', 32, [1, 2, 6])]
