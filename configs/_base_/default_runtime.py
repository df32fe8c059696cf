# What every run has in common. A config adds to default_hooks by key, so nothing here gets lost. Configs of MMDetection
# and MMSegmentation get the hooks of cvt_dense, except checkpoint and head_classes, by cvt_dense.engine.CvTRunner.
default_hooks = dict(
    timer=dict(type='IterTimerHook'),
    logger=dict(type='LoggerHook', interval=50),
    param_scheduler=dict(type='ParamSchedulerHook'),
    checkpoint=dict(type='cvt_dense.SafeCheckpointHook', interval=1, max_keep_ckpts=3),
    stop=dict(type='cvt_dense.StopHook'),
    resume=dict(type='cvt_dense.ResumeHook'),
    sampler_seed=dict(type='DistSamplerSeedHook'),
    seed=dict(type='cvt_dense.SeedHook'),
    nonfinite_loss=dict(type='cvt_dense.NonFiniteLossHook'),
    unreadable_images=dict(type='cvt_dense.UnreadableImagesHook', max_share=0.05),
    head_classes=dict(type='cvt_dense.HeadClassesHook'),
    summary=dict(type='cvt_dense.SummaryHook'))

env_cfg = dict(
    cudnn_benchmark=False,
    mp_cfg=dict(mp_start_method='fork', opencv_num_threads=0),
    dist_cfg=dict(backend='nccl'))
randomness = dict(seed=0)
log_level = 'INFO'
# Losses and times are means over the last iterations; a metric with 'loss' in its name must not be.
log_processor = dict(type='LogProcessor', mean_pattern=r'^(?!accuracy/|raw/).*(loss|time|grad_norm|teacher)')
load_from = None
resume = False
