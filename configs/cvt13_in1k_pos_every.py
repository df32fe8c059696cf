# CvT-13 with learned positional embeddings in every stage: a row of the
# paper's ablation (authors: 81.5 top-1, without: 81.6).
_base_ = 'cvt13_in1k.py'
model = dict(backbone=dict(pos_embed=[56, 28, 14]))
