# Semantic FPN, CvT-13, ADE20K at 512x512, 80,000 iterations. 4 GPUs * 4 = 16 images a step, lr 1e-4.
_base_ = [
    '_base_/models/semfpn_cvt.py', '_base_/backbones/cvt13.py', '_base_/datasets/ade20k.py',
    '_base_/schedules/seg_80k.py', '_base_/seg_runtime.py'
]
model = dict(backbone=dict(_base_.backbone, drop_path_rate=0.1))
train_dataloader = dict(batch_size=4)
