# CvT-nano on CIFAR-10, learning from a small ResNet as well, by hard labels and a distillation token.
#
#   python tools/train.py configs/cvt_nano_teacher_cifar10.py --data-root DIR      the teacher
#   python tools/train.py configs/cvt_nano_distill_hard_cifar10.py --data-root DIR
teacher = 'work_dirs/cvt_nano_teacher_cifar10/epoch_60.pth'

_base_ = 'cvt_nano_cifar10.py'

model = dict(
    distillation=dict(
        teacher=dict(
            config=__import__('cvt_dense').recipe('cvt_nano_teacher_cifar10.py'), checkpoint=teacher),
        mode='hard',
        alpha=0.5,
        token=True))
