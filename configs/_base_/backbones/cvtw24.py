# CvT-W24 for detection and segmentation. A recipe takes it with model = dict(backbone=_base_.backbone),
# and with heads and necks for its channels.
#
# The authors' ImageNet weights; --cfg-options model.backbone.init_cfg.checkpoint=FILE takes others, and
# model.backbone.init_cfg=None model.backbone.norm_eval=False trains from scratch.
pretrained = 'hf://microsoft/cvt-w24-384-22k'
channels = [192, 768, 1024]  # of the maps of stride 4, 8 and 16
backbone = dict(
    arch='cvt-w24', drop_path_rate=0.4, init_cfg=dict(type='Pretrained', checkpoint=pretrained))
