# What the three configs on the generated shapes share (python -m cvt_dense.datasets.synthetic).
arch = dict(embed_dims=(32, 64, 128), depths=(1, 1, 2), num_heads=(1, 2, 4), cls_token=(False, False, True))

classes = ('arrow', 'circle', 'crescent', 'cross', 'ring', 'square', 'star', 'triangle')
palette = [(230, 60, 60), (60, 140, 240), (250, 190, 30), (150, 80, 220), (20, 180, 150), (240, 120, 200),
           (130, 190, 40), (250, 130, 20)]
metainfo = dict(classes=classes, palette=palette)  # of the COCO files
label_map_metainfo = dict(classes=('background', *classes), palette=[(40, 40, 40), *palette])

train_dataloader = dict(num_workers=0)
val_dataloader = dict(num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False))
test_dataloader = val_dataloader
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', weight_decay=0.05),
    constructor='cvt_dense.LayerDecayOptimWrapperConstructor',
    paramwise_cfg=dict(decay_rate=1.))
