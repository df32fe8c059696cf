# This project's small CvT for a CPU and small data: 1.4 million parameters, with its weights in the package. A template
# takes it with arch = 'cvt-nano'.
pretrained = 'cvt_dense://cvt-nano'
channels = [32, 64, 128]  # of the maps of stride 4, 8 and 16
width = 64  # of necks and heads on them
backbone = dict(
    arch='cvt-nano',
    drop_path_rate=0.1,
    norm_eval=False,
    init_cfg=dict(type='Pretrained', checkpoint=pretrained))

# What templates set beside: images and their objects are small, and a CPU is slow.
window = dict(type='cvt_dense.WindowedAttention', window_size=16)  # fast on a CPU, and as accurate
templates = dict(
    backbone=dict(attn_cfg=[window, window, [window, window, None] * 2]),
    # Not the CLS token, so that detection and segmentation can start from the classifier.
    classifier=dict(out_type='avg_featmap'),
    two_stage=dict(
        neck=dict(norm_cfg=dict(type='BN')),
        rpn_head=dict(anchor_generator=dict(scales=[4])),
        train_cfg=dict(
            rpn=dict(sampler=dict(num=64)),
            rpn_proposal=dict(nms_pre=400, max_per_img=128),
            rcnn=dict(sampler=dict(num=64))),
        test_cfg=dict(rpn=dict(nms_pre=400, max_per_img=128))),
    # The network of cvt-nano-coco: fewer levels and a shallow head.
    one_stage=dict(
        neck=dict(num_outs=4, norm_cfg=dict(type='BN')),
        bbox_head=dict(stacked_convs=2, anchor_generator=dict(octave_base_scale=5, strides=[8, 16, 32, 64]))),
    published=dict(detector='cvt_dense://cvt-nano-coco'),
    upernet=dict(decode_head=dict(channels=width)),
    # In a few hundred steps AdamW learns only the frequent classes and coarse boxes. The rate is for 8 images a step.
    optimizer=dict(type='timm.optim.Muon', lr=6e-3, nesterov=True))
