# CvT-13, ImageNet-1k at 224x224, 300 epochs, learning from RegNetY-16GF as DeiT does: hard labels, and a token for
# them. timm publishes the teacher's weights; without a connection: model.distillation.teacher.checkpoint=FILE
_base_ = 'cvt13_in1k.py'

model = dict(
    distillation=dict(
        teacher=dict(type='cvt_dense.TimmTeacher', model_name='regnety_160.deit_in1k', checkpoint='timm'),
        mode='hard',
        alpha=0.5,
        token=True))
