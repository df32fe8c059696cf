# Data efficiency: a small CvT, and a DeiT and a ResNet of 0.9 to 1.1 times its parameters, on 2 to 100 % of small
# CIFAR-10's 5,000 images, from scratch, with as many steps each.
#
#   python benchmarks/study.py configs/studies/cifar_data.py --data-root DIR   DIR has {train,val}/<class>/*
#
# Images are taken evenly from the classes and repeated, so that an epoch has 5,000 images at every fraction. The ResNet
# has a stem of stride 4, and sees the images enlarged to 64x64. All are also trained with soft labels of a teacher:
# CvT-nano from the weights in the package, fine-tuned on the same images for as many steps, enlarged to 64x64.
config = 'cvt_nano_cifar10.py'
options = ['train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'train_dataloader.batch_size=32',
           'auto_scale_lr.base_batch_size=32', 'param_scheduler.0.end=0.25', 'param_scheduler.1.begin=0.25',
           'param_scheduler.1.end=1', 'param_scheduler.1.T_max=0.75', 'default_hooks.checkpoint.interval=1']
metrics = ['accuracy/top1']
seeds = [0, 1]
_timm = dict(_delete_=True, type='cvt_dense.TimmBackbone', out_type='pooled')
_networks = dict(
    cvt=dict(arch=dict(embed_dims=[32, 64, 128], depths=[1, 1, 1])),
    deit=dict(_timm, model_name='deit3_small_patch16_224', init_values=0.1, img_size=32, patch_size=4, embed_dim=96,
              depth=3, num_heads=3, drop_path_rate=0.05),
    resnet=dict(_timm, model_name='resnet10t', channels=(24, 40, 64, 120)))
_teacher = dict(arch='cvt-nano', out_type='avg_featmap',
                init_cfg=dict(type='Pretrained', checkpoint='cvt_dense://cvt-nano'))


def _member(network, percent):
    train = dict(indices=[*range(0, 5000, 100 // percent)] * (100 // percent))
    changes = dict(model=dict(backbone=_networks.get(network, _teacher)), train_dataloader=dict(dataset=train),
                   custom_hooks=[])
    if network in ('resnet', 'teacher'):
        enlarged = dict(transform=dict(input_size=64))
        train.update(enlarged)
        changes.update(val_dataloader=dict(dataset=enlarged), test_dataloader=dict(dataset=enlarged))
    return dict(name=f'{network}_{percent}', changes=changes)


def _student(network, percent):
    student = _member(network, percent)
    student['changes']['model']['distillation'] = dict(
        teacher=dict(config=__import__('cvt_dense').recipe('cvt_nano_tiny_imagenet.py')))
    return dict(student, name=f'{network}_taught_{percent}', config='cvt_nano_distill_soft_cifar10.py',
                weights={'model.distillation.teacher.checkpoint': f'teacher_{percent}'})


members = [_member(network, percent) for percent in (100, 2, 5, 10, 25, 50) for network in _networks]
members += [member for percent in (2, 10, 100)
            for member in (dict(_member('teacher', percent), seeds=[0]),
                           *(_student(network, percent) for network in _networks))]
