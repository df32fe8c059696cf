# Mask R-CNN, CvT-13, COCO, 12 epochs, windows of 28x28 tokens; three blocks of the last stage have global attention.
# The cost of windows grows linearly with the image's area. The weights are those of global attention.
_base_ = 'maskrcnn_cvt13_coco.py'
windows = dict(type='cvt_dense.WindowedAttention', window_size=28)
model = dict(backbone=dict(attn_cfg=[
    windows, windows, [windows, windows, None, windows, windows, None, windows, windows, windows, None]]))
