# A small CvT for a CPU and small data: 1 million parameters, from scratch. A template takes it with arch = 'nano'.
channels = [32, 64, 128]  # of the maps of stride 4, 8 and 16
width = 64  # of necks and heads on them
backbone = dict(
    arch=dict(embed_dims=(32, 64, 128), depths=(1, 2, 4), num_heads=(1, 2, 4)),
    drop_path_rate=0.1,
    norm_eval=False,
    init_cfg=None)
