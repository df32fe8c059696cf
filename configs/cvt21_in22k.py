# CvT-21, pretraining on ImageNet-22k at 224x224, for cvt21_384_in22k_in1k.py (authors: 84.9 top-1).
#
# As cvt13_in22k.py, with the authors' weight decay for this size: 16 GPUs * 128 = 2048, lr 2e-3.
_base_ = 'cvt13_in22k.py'
batch_size = 128  # per GPU

model = dict(backbone=dict(arch='cvt-21'))
train_dataloader = dict(batch_size=batch_size)
val_dataloader = dict(batch_size=batch_size)
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
