# ImageNet-1k at 224x224 from class folders: <data_root>/{train,val}/<class>/*.JPEG
# From list files instead (lines `path label`): ann_file='meta/val.txt' in a dataset.
data_root = 'data/imagenet'
batch_size = 256  # per GPU
num_workers = 8  # per GPU

train_dataloader = dict(
    batch_size=batch_size,
    num_workers=num_workers,
    persistent_workers=True,
    pin_memory=True,
    drop_last=True,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='cvt_dense.SeededSampler', shuffle=True),
    dataset=dict(
        type='cvt_dense.ImageDataset',
        data_root=data_root,
        split='train',
        transform=dict(
            input_size=224,
            is_training=True,
            scale=(0.08, 1.0),
            ratio=(3 / 4, 4 / 3),
            hflip=0.5,
            interpolation='bicubic',
            auto_augment='rand-m9-mstd0.5-inc1',
            color_jitter=0.4)))  # off while auto_augment is set (timm)

val_dataloader = dict(
    batch_size=batch_size,
    num_workers=num_workers,
    persistent_workers=True,
    pin_memory=True,
    drop_last=False,
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type='cvt_dense.ImageDataset',
        data_root=data_root,
        split='val',
        transform=dict(input_size=224, interpolation='bicubic', crop_pct=0.875)))  # 256, centre crop 224
test_dataloader = val_dataloader

val_evaluator = dict(type='cvt_dense.Accuracy', topk=(1, 5))
test_evaluator = val_evaluator
