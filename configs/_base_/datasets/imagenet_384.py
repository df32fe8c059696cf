# Fine-tuning at 384x384 on class folders: no automatic augmentation; evaluated as the authors do, resized to
# 384x384 without a crop.
_base_ = 'imagenet_224.py'
batch_size = 64  # per GPU

train_dataloader = dict(
    batch_size=batch_size, dataset=dict(transform=dict(input_size=384, auto_augment=None, color_jitter=None)))
val_dataloader = dict(
    batch_size=batch_size,
    dataset=dict(transform=dict(input_size=384, interpolation='bicubic', crop_pct=1.0, crop_mode='squash')))
test_dataloader = val_dataloader
