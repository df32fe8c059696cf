# What Mask2Former's head has on CvT-nano: 64 channels and few layers.
width = 64
attention = dict(embed_dims=width)
ffn = dict(embed_dims=width, feedforward_channels=4 * width)
head = dict(
    in_channels=[32, 64, 128, 128], feat_channels=width, out_channels=width, num_queries=30,
    pixel_decoder=dict(
        encoder=dict(num_layers=2, layer_cfg=dict(self_attn_cfg=attention, ffn_cfg=ffn)),
        positional_encoding=dict(num_feats=width // 2)),
    positional_encoding=dict(num_feats=width // 2),
    transformer_decoder=dict(
        num_layers=3, layer_cfg=dict(self_attn_cfg=attention, cross_attn_cfg=attention, ffn_cfg=ffn)))
del width, attention, ffn
