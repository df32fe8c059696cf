# CvT-21, pretrained on ImageNet-22k, fine-tuned on ImageNet-1k at 384x384 (authors: 84.9 top-1).
#
# The head keeps the rows of its 1000 classes, which HeadClassesHook finds by the names of the class folders.
_base_ = 'cvt13_384_in1k.py'
load_from = 'work_dirs/cvt21_in22k/epoch_90.pth'  # a variant of cvt13_in22k.py, see README.md
model = dict(backbone=dict(arch='cvt-21'))
