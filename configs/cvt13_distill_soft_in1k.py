# CvT-13, ImageNet-1k at 224x224, 300 epochs, learning from RegNetY-16GF: soft labels, with DeiT's temperature and
# share. DeiT divides its second term by the number of classes too, so there it counts 1000 times less.
_base_ = 'cvt13_distill_hard_in1k.py'

model = dict(distillation=dict(mode='soft', alpha=0.1, temperature=3., token=False))
