# CvT-13, ImageNet-1k at 224x224, 300 epochs, learning from RegNetY-16GF: soft labels. The temperature and alpha
# are DeiT's, which divides its second term by the number of classes too, so there it counts 1000 times less.
_base_ = 'cvt13_in1k.py'

model = dict(
    distillation=dict(
        teacher=dict(type='cvt_dense.TimmTeacher', model_name='regnety_160.deit_in1k', checkpoint='timm'),
        mode='soft',
        alpha=0.1,
        temperature=3.,
        token=False))
