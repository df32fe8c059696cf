# Fine-tuning at 384x384 as in the paper, section 4.1: SGD with momentum 0.9, total batch 512, 20,000
# steps on ImageNet-1k, which is 8 epochs. The paper gives no learning rate and follows ViT, which chose
# among 0.003, 0.01, 0.03 and 0.06 with cosine decay, no weight decay and gradients clipped to 1: 0.01 here. The
# authors' files for 384 pixels have the settings of 224 pixels instead: AdamW, 300 epochs, Mixup and RandAugment.
#
# Learning rate: 0.01 for a total batch of 512 (GPUs * batch per GPU * accumulative_counts), scaled
# linearly to the real one, e.g. 8 GPUs * 64 = 512: 0.01; 1 GPU * 64: 0.00125.
_base_ = './bf16.py'

max_epochs = 8
train_cfg = dict(by_epoch=True, max_epochs=max_epochs, val_interval=1)
val_cfg = dict()
test_cfg = dict()

auto_scale_lr = dict(base_batch_size=512, enable=True)
optim_wrapper = dict(
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.), clip_grad=dict(max_norm=1.))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, by_epoch=False, begin=0, end=100),
    dict(type='CosineAnnealingLR', eta_min=0., begin=0, end=max_epochs, T_max=max_epochs, convert_to_iter_based=True)
]
