# CvT-W24, pretrained on ImageNet-22k, fine-tuned on ImageNet-1k at 384x384 (authors: 87.7 top-1).
# 8 GPUs * 64 = 512, lr 0.01. model.backbone.with_cp=True saves memory.
#
# The head keeps the rows of its 1000 classes, which HeadClassesHook finds by the names of the class folders.
_base_ = 'cvt13_384_in1k.py'
load_from = 'work_dirs/cvtw24_in22k/epoch_90.pth'  # a variant of cvt13_in22k.py, see README.md
model = dict(backbone=dict(arch='cvt-w24'))
