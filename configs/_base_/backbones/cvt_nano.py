# This project's small CvT for a CPU and small data: 1.4 million parameters, with its weights in the package. A template
# takes it with arch = 'cvt-nano'.
pretrained = 'cvt_dense://cvt-nano'
channels = [32, 64, 128]  # of the maps of stride 4, 8 and 16
width = 64  # of necks and heads on them
backbone = dict(
    arch='cvt-nano',
    drop_path_rate=0.1,
    norm_eval=False,
    init_cfg=dict(type='Pretrained', checkpoint=pretrained))
