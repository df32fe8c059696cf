# 12 epochs; the learning rate falls to a tenth after 8 and 11. AdamW 1e-4 for 16 images a step (8 GPUs x 2), as for
# Swin-T; see auto_scale_lr.
_base_ = './adamw.py'

max_epochs = 12
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=max_epochs, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')

param_scheduler = [
    dict(type='LinearLR', start_factor=0.001, by_epoch=False, begin=0, end=1000),
    dict(type='MultiStepLR', begin=0, end=max_epochs, by_epoch=True, gamma=0.1,
         milestones=[round(max_epochs * 2 / 3), round(max_epochs * 11 / 12)])
]

optim_wrapper = dict(
    dtype='float16',  # mmcv has RoIAlign and deformable attention in float16 and float32 only
    loss_scale='dynamic',
    optimizer=dict(lr=1e-4))

# --auto-scale-lr: lr = 1e-4 * (GPUs * images a GPU) / 16
auto_scale_lr = dict(enable=False, base_batch_size=16)
