# Attention in windows of 28x28 tokens, in the last stage but for three blocks that see the whole map: linear cost in
# the image's area, same weights.
_base_ = 'maskrcnn_cvt13_coco.py'
windows = dict(type='cvt_dense.WindowedAttention', window_size=28)
model = dict(backbone=dict(attn_cfg=[
    windows, windows, [windows, windows, None, windows, windows, None, windows, windows, windows, None]]))
