_base_ = __import__('cvt_dense').recipe('cvt_nano_shapes.py')
custom_imports = dict(imports=['my_extensions'])
model = dict(
    type='cvt_dense.MLPClassifier',
    num_classes=8,  # as many as there are names
    backbone=dict(attn_cfg=[None, None, dict(type='cvt_dense.CosineAttention')]))
train_dataloader = dict(dataset=dict(type='cvt_dense.NamedImages'))
val_dataloader = dict(dataset=dict(type='cvt_dense.NamedImages'))
test_dataloader = val_dataloader
custom_hooks = [*_base_.custom_hooks, dict(type='cvt_dense.CountImagesHook')]  # the base's hooks and this one
