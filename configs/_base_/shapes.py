# Settings of the three configs on the generated shapes (python -m cvt_dense.shapes). The network is CvT-nano,
# written out so that a config can change a part of it.
arch = dict(embed_dims=(32, 64, 128), depths=(1, 2, 6), num_heads=(1, 2, 4), cls_token=False)

classes = ('arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')
metainfo = dict(classes=classes)  # of the COCO files
label_map_metainfo = dict(classes=('background', *classes))

train_dataloader = dict(num_workers=0)
val_dataloader = dict(num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = val_dataloader
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', weight_decay=0.05),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.))
