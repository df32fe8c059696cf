# CvT-nano against networks of 0.9 to 1.1 times its parameters, from scratch on small CIFAR-10: equal epochs,
# augmentation, optimizer. About 90 minutes on 2 cores.
#
#   python benchmarks/study.py configs/studies/cifar_backbones.py --data-root DIR   DIR has {train,val}/<class>/*
#
# CvT's first stride is 2. Networks that timm gives a stem of stride 4 see the images enlarged to 64x64, so that all
# have maps of 16, 8 and 4.
config = 'cvt_nano_cifar10.py'
options = ['train_cfg.max_epochs=20', 'param_scheduler.1.end=20', 'param_scheduler.1.T_max=17']
metrics = ['accuracy/top1', 'raw/top1']
seeds = [0, 1]
size, batch = '32x32', 64  # for the cost


def _network(name, large=False, **backbone):
    changes = dict(model=dict(backbone=dict(
        _delete_=True, type='cvt_dense.TimmBackbone', out_type='pooled', **backbone)))
    if large:
        for loader in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
            changes[loader] = dict(dataset=dict(transform=dict(input_size=64)))
    return dict(name=name, changes=changes, size='64x64' if large else '32x32')


_vit = dict(img_size=32, patch_size=4, embed_dim=144, depth=5, num_heads=3, drop_path_rate=0.05)
members = [
    dict(name='cvt_nano'),
    _network('resnet', True, model_name='resnet10t', channels=(40, 80, 160, 224)),
    _network('vit', model_name='vit_tiny_patch16_224', **_vit),
    _network('deit3', model_name='deit3_small_patch16_224', init_values=0.1, **_vit),  # 1e-6 is for deep ones
    _network('swin', model_name='swin_tiny_patch4_window7_224', img_size=32, patch_size=2, window_size=4, embed_dim=48,
             depths=(2, 2, 2), num_heads=(1, 2, 4), drop_path_rate=0.05),
    _network('pvtv2', True, model_name='pvt_v2_b0', embed_dims=(24, 48, 120, 160), depths=(1, 1, 2, 2),
             drop_path_rate=0.05),
    _network('convnext', model_name='convnext_atto', patch_size=2, dims=(24, 48, 112, 216), depths=(2, 2, 4, 2),
             drop_path_rate=0.05),
    _network('ghostnet', True, model_name='ghostnet_050'),
]
