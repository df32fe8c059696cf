# Mask2Former for semantic segmentation as mmseg defines it, on CvT's maps of stride 4, 8, 16 and its pooled 32. The
# head's parts need mmdet installed. Only the model is taken; as a _base_ the file would bring data and schedule too.
model = __import__('mmengine').Config.fromfile(
    f'{__import__("mmseg").__path__[0]}/.mim/configs/mask2former/mask2former_r50_8xb2-160k_ade20k-512x512.py').model
model.backbone = dict(
    type='cvt_dense.CvT',
    out_indices=(0, 1, 2, 3),
    norm_eval=True)  # 2 images a GPU are too few for BatchNorm's own statistics
model.decode_head.in_channels = [64, 192, 384, 384]
