# Swin-T of timm, ImageNet-1k at 224x224 from scratch by CvT-13's recipe: 300 epochs, total batch 2048, lr 2e-3.
_base_ = 'cvt13_in1k.py'
model = dict(
    backbone=dict(
        _delete_=True,
        type='cvt_dense.TimmBackbone',
        model_name='swin_tiny_patch4_window7_224',
        out_type='pooled',
        drop_path_rate=0.2))
