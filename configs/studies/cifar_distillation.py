# CvT-nano on small CIFAR-10 with a convolutional teacher and without, at equal epochs: hard and soft labels, with the
# distillation token and without. The teacher is trained first, on the same images. About two hours on 2 cores.
#
#   python benchmarks/study.py configs/studies/cifar_distillation.py --data-root DIR   DIR has {train,val}/<class>/*
options = ['train_cfg.max_epochs=30', 'param_scheduler.1.end=30', 'param_scheduler.1.T_max=27']
metrics = ['accuracy/top1', 'raw/top1']
seeds = [0, 1]


def _student(name, mode, token):
    return dict(name=name, config=f'cvt_nano_distill_{mode}_cifar10.py',
                changes=dict(model=dict(distillation=dict(token=token))),
                weights={'model.distillation.teacher.checkpoint': 'teacher'})


members = [
    dict(name='teacher', config='cvt_nano_teacher_cifar10.py', options=[], seeds=[0]),  # its 60 epochs
    dict(name='plain', config='cvt_nano_cifar10.py'),
    _student('hard', 'hard', False),
    _student('hard_token', 'hard', True),
    _student('soft', 'soft', False),
    _student('soft_token', 'soft', True),
]
