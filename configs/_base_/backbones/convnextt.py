# ConvNeXt-T of timm for detection and segmentation, with timm's ImageNet-1k weights.
# A recipe takes it with model = dict(backbone=dict(_delete_=True, **_base_.backbone)); --cfg-options
# model.backbone.init_cfg.checkpoint=FILE takes other weights, model.backbone.init_cfg=None trains from scratch.
channels = [96, 192, 384, 768]  # of the maps of stride 4, 8, 16 and 32
backbone = dict(
    type='cvt_dense.TimmBackbone',
    model_name='convnext_tiny.fb_in1k',
    drop_path_rate=0.2,
    level_norms=True,
    init_cfg=dict(type='Pretrained', checkpoint='timm'))
