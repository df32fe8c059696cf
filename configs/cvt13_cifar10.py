# CvT-13 on CIFAR-10 at 384x384, from weights of ImageNet-22k, then -1k.
# Authors' top-1: CvT-13 98.83, CvT-21 99.16, CvT-W24 99.39.
#
# 9,991 steps of 512 images, the nearest to the authors' 10,000: 103 epochs of the 50,000 training images in 97
# batches (another 336 images are left out each time); in folders data/cifar10/{train,val}/<class>/.
# For CvT-21: --cfg-options model.backbone.arch=cvt-21 load_from=hf://microsoft/cvt-21-384-22k; for CvT-W24 likewise.
_base_ = [
    '_base_/models/cvt_classifier_plain.py', '_base_/datasets/imagenet_384.py',
    '_base_/schedules/sgd_finetune.py', '_base_/cls_runtime.py'
]
load_from = 'hf://microsoft/cvt-13-384-22k'  # its head of 1000 classes is replaced
max_epochs = 103

model = dict(num_classes=10)
data_root = 'data/cifar10'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [_base_.param_scheduler[0], dict(_base_.param_scheduler[1], end=max_epochs, T_max=max_epochs)]
