# DINO with four levels as mmdet defines it (dino-4scale): strides 8, 16 and CvT's pooled 32, and a convolved 64.
# Only its model is taken; as a _base_ the file would bring its data and schedule too.
model = __import__('mmengine').Config.fromfile(
    f'{__import__("mmdet").__path__[0]}/.mim/configs/dino/dino-4scale_r50_8xb2-12e_coco.py').model
model.backbone = dict(
    type='cvt_dense.CvT',
    out_indices=(1, 2, 3),
    norm_eval=True)  # 2 images a GPU are too few for BatchNorm's own statistics
model.neck.in_channels = [192, 384, 384]
model.data_preprocessor.non_blocking = True  # images in pinned memory: copied while the device computes
