# CvT-13, pretraining on ImageNet-22k at 224x224, for cvt13_384_in22k_in1k.py (authors: 83.3 top-1 after it).
#
# The authors publish no schedule for ImageNet-22k: this is theirs of ImageNet-1k with 90 epochs, ViT's
# number for this data set. 8 GPUs * 256 = 2048, lr 2e-3.
_base_ = [
    '_base_/models/cvt_classifier.py', '_base_/datasets/imagenet_224.py', '_base_/schedules/adamw_300e.py',
    '_base_/cls_runtime.py'
]
max_epochs = 90
warmup_epochs = min(5, max_epochs / 2)

model = dict(num_classes=21841)
data_root = 'data/imagenet22k'  # class folders in train/ and val/
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(_base_.param_scheduler[0], end=warmup_epochs),
    dict(_base_.param_scheduler[1], begin=warmup_epochs, end=max_epochs, T_max=max_epochs - warmup_epochs)
]
