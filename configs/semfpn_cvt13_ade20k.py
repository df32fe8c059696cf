# Semantic FPN, CvT-13, ADE20K at 512x512, 80,000 iterations. 4 GPUs * 4 = 16 images a step, lr 1e-4.
_base_ = [
    '_base_/models/semfpn_cvt.py', '_base_/datasets/ade20k.py', '_base_/schedules/seg_80k.py',
    '_base_/seg_runtime.py'
]
pretrained = 'hf://microsoft/cvt-13'
model = dict(backbone=dict(arch='cvt-13', init_cfg=dict(type='Pretrained', checkpoint=pretrained)))
train_dataloader = dict(batch_size=4)
