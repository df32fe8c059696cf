# CvT-13 for detection and segmentation. A recipe takes it with model = dict(backbone=_base_.backbone).
#
# The authors' ImageNet weights; --cfg-options model.backbone.init_cfg.checkpoint=FILE takes others, and
# model.backbone.init_cfg=None model.backbone.norm_eval=False trains from scratch.
pretrained = 'hf://microsoft/cvt-13'
channels = [64, 192, 384]  # of the maps of stride 4, 8 and 16
backbone = dict(
    arch='cvt-13', drop_path_rate=0.2, init_cfg=dict(type='Pretrained', checkpoint=pretrained))
