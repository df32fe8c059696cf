# UperNet from scratch on small CamVid: CvT-nano with global attention and two patterns of windows, a ResNet and a Swin
# of 0.9 to 1.1 times its parameters. About 70 minutes on 2 cores.
#
#   python benchmarks/study.py configs/studies/camvid_backbones.py --data-root DIR   DIR as upernet_cvt_nano_camvid's
config = 'upernet_cvt_nano_camvid.py'
options = ['train_cfg.max_iters=800', 'param_scheduler.1.end=800']
metrics = ['mIoU']
seeds = [0, 1]
size, batch = '192x256', 8  # for the cost


def _network(name, maps, **backbone):
    return dict(name=name, changes=dict(model=dict(
        backbone=dict(_delete_=True, type='cvt_dense.TimmBackbone', **backbone),
        decode_head=dict(in_channels=maps, in_index=list(range(len(maps)))),
        auxiliary_head=dict(in_channels=maps[2]))))


def _windows(size):
    return dict(type='cvt_dense.WindowedAttention', window_size=size)


members = [
    dict(name='cvt_nano'),
    dict(name='cvt_nano_windowed',
         changes=dict(model=dict(backbone=dict(attn_cfg=[_windows(16), _windows(16), None])))),
    dict(name='cvt_nano_windows_everywhere',
         changes=dict(model=dict(backbone=dict(attn_cfg=[_windows(16), _windows(16), [_windows(8)] * 3 + [None]])))),
    _network('resnet', [24, 48, 96, 144], model_name='resnet18', channels=(24, 48, 96, 144), out_indices=(1, 2, 3, 4)),
    _network('swin', [32, 64, 128], model_name='swin_tiny_patch4_window7_224', embed_dim=32, depths=(2, 2, 4),
             num_heads=(1, 2, 4), drop_path_rate=0.1, level_norms=True),
]
