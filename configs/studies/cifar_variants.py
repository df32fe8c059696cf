# Each option of CvT against the plain network, and the paper's rows: projections, stride of k and v, positional
# embeddings. CvT-nano from scratch on small CIFAR-10. About 70 minutes on 2 cores.
#
#   python benchmarks/study.py configs/studies/cifar_variants.py --data-root DIR   DIR has {train,val}/<class>/*
config = 'cvt_nano_cifar10.py'
options = ['train_cfg.max_epochs=12', 'param_scheduler.1.end=12', 'param_scheduler.1.T_max=9']
metrics = ['accuracy/top1', 'raw/top1']
seeds = [0, 1]
size, batch = '32x32', 64  # for the cost


def _variant(name, **backbone):
    return dict(name=name, changes=dict(model=dict(backbone=backbone)))


members = [
    dict(name='plain'),
    _variant('layer_scale', layer_scale_init_value=0.1),
    _variant('hybrid', attn_cfg=dict(proj_cfg=dict(type='cvt_dense.HybridProjection'))),
    _variant('linear_attention', attn_cfg=[dict(type='cvt_dense.LinearAttention')] * 2 + [None]),
    _variant('cpb', attn_cfg=dict(rel_pos_cfg=dict(type='cvt_dense.RelPosBias'))),
    _variant('rope', attn_cfg=dict(rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))),
    _variant('pos_first', pos_embed=[16, None, None]),
    _variant('pos_all', pos_embed=[16, 8, 4]),
    _variant('avg_projection', arch=dict(qkv_proj_method='avg')),
    _variant('linear_projection', arch=dict(qkv_proj_method='linear')),
    _variant('kv_stride_1', arch=dict(stride_kv=1)),
]
