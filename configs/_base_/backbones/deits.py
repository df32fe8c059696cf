# DeiT-S of timm for segmentation, with timm's ImageNet-1k weights: one map of stride 16, after the last block.
# A recipe takes it with model = dict(backbone=dict(_delete_=True, **_base_.backbone)); --cfg-options
# model.backbone.init_cfg.checkpoint=FILE takes other weights, model.backbone.init_cfg=None trains from scratch.
channels = [384]
backbone = dict(
    type='cvt_dense.TimmBackbone',
    model_name='deit_small_patch16_224.fb_in1k',
    out_indices=(11, ),
    drop_path_rate=0.2,
    level_norms=True,
    init_cfg=dict(type='Pretrained', checkpoint='timm'))
