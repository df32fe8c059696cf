# UperNet, CvT-13, ADE20K at 512x512, 160,000 iterations, windows of 32x32 tokens in two stages.
# The windows divide the maps of a 512x512 crop evenly.
_base_ = 'upernet_cvt13_ade20k.py'
windows = dict(type='cvt_dense.WindowedAttention', window_size=32)
model = dict(backbone=dict(attn_cfg=[windows, windows, None]))
