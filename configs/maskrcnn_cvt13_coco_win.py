# Attention in windows of 28x28 tokens, in the last stage but for three blocks that see the whole map: linear cost in
# the image's area, same weights.
_base_ = 'maskrcnn_cvt13_coco.py'
model = dict(backbone=dict(window_size=[28, 28, [28, 28, None, 28, 28, None, 28, 28, 28, None]]))
