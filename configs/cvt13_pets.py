# CvT-13 on Oxford-IIIT Pets at 384x384, from weights of ImageNet-22k, then -1k.
# Authors' top-1: CvT-13 93.25, CvT-21 94.03, CvT-W24 94.73.
#
# 497 steps of 512 images, the nearest to the authors' 500: 71 epochs of the 3,680 training images in 7 batches
# (another 96 images are left out each time); in folders data/pets/{train,val}/<class>/.
# For CvT-21: --cfg-options model.backbone.arch=cvt-21 load_from=hf://microsoft/cvt-21-384-22k; for CvT-W24 likewise.
_base_ = 'cvt13_flowers.py'
max_epochs = 71

model = dict(num_classes=37)
data_root = 'data/pets'
train_dataloader = dict(drop_last=True, dataset=dict(data_root=data_root))
val_dataloader = dict(dataset=dict(data_root=data_root))
test_dataloader = val_dataloader
train_cfg = dict(max_epochs=max_epochs)
param_scheduler = [_base_.param_scheduler[0], dict(_base_.param_scheduler[1], end=max_epochs, T_max=max_epochs)]
