# ResNet-50 of timm for detection and segmentation, with timm's ImageNet-1k weights.
# A recipe takes it with model = dict(backbone=dict(_delete_=True, **_base_.backbone)); --cfg-options
# model.backbone.init_cfg.checkpoint=FILE takes other weights, model.backbone.init_cfg=None trains from scratch.
channels = [256, 512, 1024, 2048]  # of the maps of stride 4, 8, 16 and 32
backbone = dict(
    type='cvt_dense.TimmBackbone',
    model_name='resnet50.a1_in1k',
    out_indices=(1, 2, 3, 4),  # timm counts the stem, of stride 2, as 0
    norm_eval=True,
    init_cfg=dict(type='Pretrained', checkpoint='timm'))
