# Folders of images at 384x384; evaluated as the authors do: resized to 384x384 without a crop.
_base_ = 'imagenet_224.py'
train_dataloader = dict(dataset=dict(transform=dict(input_size=384)))
val_dataloader = dict(
    dataset=dict(transform=dict(input_size=384, interpolation='bicubic', crop_pct=1.0, crop_mode='squash')))
test_dataloader = val_dataloader
