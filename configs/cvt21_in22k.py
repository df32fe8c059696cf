# CvT-21, pretraining on ImageNet-22k at 224x224, for cvt21_384_in22k_in1k.py (authors: 84.9 top-1 after it).
#
# As cvt13_in22k.py, with the authors' weight decay for this size: 8 GPUs * 256 = 2048, lr 2e-3.
# An estimated 23 GiB a GPU.
_base_ = 'cvt13_in22k.py'

model = dict(backbone=dict(arch='cvt-21'))
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
