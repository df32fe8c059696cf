# CvT-13, pretrained on ImageNet-22k, fine-tuned on ImageNet-1k at 384x384 (authors: 83.3 top-1).
#
# The head keeps the rows of its 1000 classes, which HeadClassesHook finds by the names of the class folders.
_base_ = 'cvt13_384_in1k.py'
load_from = 'work_dirs/cvt13_in22k/epoch_90.pth'
