# The small CvT of cvt_small_cifar10.py, learning from a small ResNet as well, by soft labels. For hard labels and a
# token for them: --cfg-options model.distillation.mode=hard model.distillation.token=True
#
#   python tools/train.py configs/cvt_small_teacher_cifar10.py --data-root DIR      the teacher
#   python tools/train.py configs/cvt_small_distill_cifar10.py --data-root DIR
teacher = 'work_dirs/cvt_small_teacher_cifar10/epoch_60.pth'

_base_ = 'cvt_small_cifar10.py'

model = dict(
    distillation=dict(
        teacher=dict(
            config=__import__('cvt_dense').recipe('cvt_small_teacher_cifar10.py'), checkpoint=teacher),
        mode='soft',
        alpha=0.5,
        temperature=3.,
        token=False))
