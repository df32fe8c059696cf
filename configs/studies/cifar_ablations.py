# The paper's ablations: patch embeddings (kernel = stride) against convolutional ones by stages, linear projections
# against convolutional ones by stages, stride 1 of k and v against 2, kernel 5 against 3. A small CvT, from scratch on
# small CIFAR-10's 5,000 images for one epoch.
#
#   python benchmarks/study.py configs/studies/cifar_ablations.py --data-root DIR   DIR has {train,val}/<class>/*
config = 'cvt_nano_cifar10.py'
options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=32',
           'auto_scale_lr.base_batch_size=32', 'param_scheduler.0.end=0.25', 'param_scheduler.1.begin=0.25',
           'param_scheduler.1.end=1', 'param_scheduler.1.T_max=0.75', 'default_hooks.checkpoint.interval=1']
metrics = ['accuracy/top1']
seeds = [0, 1]


def _member(name, **arch):
    arch = dict(dict(embed_dims=[32, 64, 128], depths=[1, 1, 1]), **arch)
    return dict(name=name, changes=dict(model=dict(backbone=dict(arch=arch)), custom_hooks=[]))


def _patches(name, *stages):
    return _member(name, patch_sizes=[2 if i in stages else 3 for i in (1, 2, 3)],
                   patch_paddings=[0 if i in stages else 1 for i in (1, 2, 3)])


def _convolutional(name, *stages):
    return _member(name, qkv_proj_method=['dw_bn' if i in stages else 'linear' for i in (1, 2, 3)])


members = [
    _member('cvt'),
    _patches('patches_1', 1), _patches('patches_2', 2), _patches('patches_3', 3), _patches('patches_123', 1, 2, 3),
    _convolutional('linear_projections'), _convolutional('projections_1', 1), _convolutional('projections_12', 1, 2),
    _convolutional('projections_23', 2, 3),
    _member('kv_stride_1', stride_kv=1),
    _member('kernel_5', kernel_qkv=5, padding_q=2, padding_kv=2),
]
