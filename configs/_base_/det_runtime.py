# default_runtime.py and what mmdet needs besides.
_base_ = 'default_runtime.py'

default_scope = 'mmdet'
default_hooks = dict(visualization=dict(type='DetVisualizationHook'))
vis_backends = [dict(type='LocalVisBackend')]
visualizer = dict(type='DetLocalVisualizer', vis_backends=vis_backends, name='visualizer')
log_processor = dict(type='LogProcessor', window_size=50, by_epoch=True)
