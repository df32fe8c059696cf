# The teacher of cvt_small_distill_cifar10.py: timm's ResNet-10-T on the same images, enlarged to 64x64.
_base_ = 'cvt_small_cifar10.py'

model = dict(backbone=dict(_delete_=True, type='cvt_dense.TimmBackbone', model_name='resnet10t', out_type='pooled'))
train_dataloader = val_dataloader = test_dataloader = dict(dataset=dict(transform=dict(input_size=64)))
