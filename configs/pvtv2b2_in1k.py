# PVTv2-B2 of timm, ImageNet-1k at 224x224 from scratch by CvT-13's recipe: 300 epochs, total batch 2048, lr 2e-3.
_base_ = 'cvt13_in1k.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='cvt_dense.TimmBackbone',
        model_name='pvt_v2_b2',
        out_type='pooled',
        drop_path_rate=0.1))
