# CvT-13 on CIFAR-10 at 384x384, from ImageNet-22k weights.
# Authors' top-1: CvT-13 98.83, CvT-21 99.16, CvT-W24 99.39.
#
# 10,000 steps of 512 images are 102 epochs of the 50,000 training images,
# in folders data/cifar10/{train,val}/<class>/.
# For the other two: --cfg-options model.backbone.arch=cvt-21 load_from=checkpoints/CvT-21-384x384-IN-22k.pth
_base_ = 'cvt13_384_in1k.py'
load_from = 'hf://microsoft/cvt-13-384-22k'  # its head of 1000 classes is replaced
max_epochs = 102

model = dict(num_classes=10)
data_root = 'data/cifar10'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=0., begin=0, end=max_epochs, T_max=max_epochs, convert_to_iter_based=True)
]
