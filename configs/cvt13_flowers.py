# CvT-13 on Oxford Flowers-102 at 384x384, from weights of ImageNet-22k, then -1k.
# Authors' top-1: CvT-13 99.50, CvT-21 99.62, CvT-W24 99.72.
#
# 500 steps, 125 epochs of the 2,040 training images in 4 batches (the last lacks 8 images of 512);
# in folders data/flowers/{train,val}/<class>/.
# For CvT-21: --cfg-options model.backbone.arch=cvt-21 load_from=hf://microsoft/cvt-21-384-22k; for CvT-W24 likewise.
_base_ = [
    '_base_/models/cvt_classifier_plain.py', '_base_/datasets/imagenet_384.py',
    '_base_/schedules/sgd_finetune.py', '_base_/cls_runtime.py'
]
load_from = 'hf://microsoft/cvt-13-384-22k'  # its head of 1000 classes is replaced
max_epochs = 125

model = dict(num_classes=102)
data_root = 'data/flowers'
train_dataloader = dict(drop_last=False, dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(_base_.param_scheduler[0], end=50),
    dict(_base_.param_scheduler[1], end=max_epochs, T_max=max_epochs)
]
default_hooks = dict(checkpoint=dict(interval=5))  # an epoch has four steps
