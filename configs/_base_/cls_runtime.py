# default_runtime.py and what classification needs besides: the best checkpoint is kept too.
_base_ = 'default_runtime.py'

default_scope = 'cvt_dense'
default_hooks = dict(checkpoint=dict(save_best='accuracy/top1'))
env_cfg = dict(cudnn_benchmark=True)  # every image has one size: the search for the fastest kernels pays
