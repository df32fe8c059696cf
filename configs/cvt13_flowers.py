# CvT-13 on Oxford Flowers-102 at 384x384, from ImageNet-22k weights.
# Authors' top-1: CvT-13 99.50, CvT-21 99.62, CvT-W24 99.72.
#
# 500 steps of 512 images are 125 epochs of the 2,040 training images,
# in folders data/flowers/{train,val}/<class>/.
# For the other two: --cfg-options model.backbone.arch=cvt-21 load_from=checkpoints/CvT-21-384x384-IN-22k.pth
_base_ = 'cvt13_384_in1k.py'
load_from = 'hf://microsoft/cvt-13-384-22k'  # its head of 1000 classes is replaced
max_epochs = 125

model = dict(num_classes=102)
data_root = 'data/flowers'
train_dataloader = dict(dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs, val_interval=5)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=50),
    dict(type='CosineAnnealingLR', eta_min=0., begin=0, end=max_epochs, T_max=max_epochs, convert_to_iter_based=True)
]
