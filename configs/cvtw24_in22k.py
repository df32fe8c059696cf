# CvT-W24, pretraining on ImageNet-22k at 224x224, for cvtw24_384_in22k_in1k.py (authors: 87.7 top-1 after it).
#
# The authors publish no schedule for ImageNet-22k: this is theirs of ImageNet-1k with 90 epochs, ViT's
# number for this data set. 16 GPUs * 128 = 2048, lr 2e-3.
_base_ = 'cvt13_in1k.py'
batch_size = 128  # per GPU
max_epochs = 90

model = dict(backbone=dict(arch='cvt-w24'), num_classes=21841)
data_root = 'data/imagenet22k'  # class folders in train/ and val/
train_dataloader = dict(batch_size=batch_size, dataset=dict(data_root=data_root))
val_dataloader = dict(batch_size=batch_size, dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-6 / 2e-3, begin=0, end=5, convert_to_iter_based=True),
    dict(type='CosineAnnealingLR', eta_min_ratio=1e-5 / 2e-3, begin=5, end=max_epochs, T_max=max_epochs - 5,
         convert_to_iter_based=True)
]
