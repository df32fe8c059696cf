# CvT-21, fine-tuned on ImageNet-1k at 384x384 from its weights at 224 (authors: 83.3 top-1).
_base_ = 'cvt13_384_in1k.py'
load_from = 'hf://microsoft/cvt-21'
model = dict(backbone=dict(arch='cvt-21'))
