# CvT-nano on CIFAR-10, learning from a small ResNet as well, by soft labels.
#
#   python tools/train.py configs/cvt_nano_teacher_cifar10.py --data-root DIR      the teacher
#   python tools/train.py configs/cvt_nano_distill_soft_cifar10.py --data-root DIR
_base_ = 'cvt_nano_distill_hard_cifar10.py'

model = dict(distillation=dict(mode='soft', temperature=3., token=False))
