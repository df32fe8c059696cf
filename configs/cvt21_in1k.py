# CvT-21, ImageNet-1k at 224x224, 300 epochs (authors: 82.5 top-1).
# 8 GPUs * 256 = 2048, lr 2e-3. The authors had 16 GPUs * 128.
# Augmentation is that of the paper and of CvT-13. The authors' file for this network has another one: it draws each
# image three times (repeated augmentation), crops bilinearly, and has neither RandAugment nor random erasing. Which of
# the two gave the published figure is not known.
_base_ = 'cvt13_in1k.py'

model = dict(backbone=dict(arch='cvt-21'))
optim_wrapper = dict(optimizer=dict(weight_decay=0.1))
