# CvT-21, fine-tuned on ImageNet-1k at 384x384 from its weights at 224 (authors: 83.3 top-1).
_base_ = 'cvt13_384_in1k.py'
load_from = 'checkpoints/CvT-21-224x224-IN-1k.pth'
model = dict(backbone=dict(arch='cvt-21'))
