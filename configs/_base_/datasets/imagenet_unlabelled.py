# All images below <data_root>/<split>, without labels, at 192x192: large crops and mirror images.
train_dataloader = dict(
    batch_size=256,  # per GPU
    num_workers=8,  # per GPU
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='cvt_dense.SeededSampler', shuffle=True),
    dataset=dict(
        type='cvt_dense.ImageDataset',
        data_root='data/imagenet',
        split='train',
        labels=False,
        transform=dict(
            input_size=192, is_training=True, scale=(0.67, 1.0), hflip=0.5, interpolation='bicubic',
            color_jitter=None)))
