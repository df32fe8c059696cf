# CvT-W24, pretraining on ImageNet-22k at 224x224, for cvtw24_384_in22k_in1k.py (authors: 87.7 top-1 after it).
#
# As cvt13_in22k.py, with the authors' weight decay for this size: 8 GPUs * 128 * 2 steps = 2048,
# lr 2e-3. An estimated 41 GiB a GPU, 13 with model.backbone.with_cp=True.
_base_ = 'cvt13_in22k.py'
batch_size = 128  # per GPU

model = dict(backbone=dict(arch='cvt-w24'))
train_dataloader = dict(batch_size=batch_size)
val_dataloader = dict(batch_size=batch_size)
test_dataloader = val_dataloader
optim_wrapper = dict(accumulative_counts=2, optimizer=dict(weight_decay=0.1))
