# upernet_cvt_nano_camvid.py for half an hour of two CPU cores after pretraining (mIoU 56.0, README.md here): windows in
# every stage, which cost less and were better, weights of masked pretraining on the same images, and more steps.
#
#   python tools/train.py configs/simmim_cvt_nano.py --data-root DIR
#   tools/dist_train.sh configs/upernet_cvt_nano_camvid_win.py 2 --data-root DIR
_base_ = 'upernet_cvt_nano_camvid.py'
max_iters = 3000
warmup_iters = min(50, max_iters / 2)

windows16, windows8 = (dict(type='cvt_dense.WindowedAttention', window_size=size) for size in (16, 8))
model = dict(
    backbone=dict(
        with_cls_token=False,
        attn_cfg=[windows16, windows16, [windows8, windows8, windows8, None]],
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/simmim_cvt_nano/epoch_150.pth')))
train_dataloader = dict(batch_size=4)  # of each process
train_cfg = dict(max_iters=max_iters, val_interval=1000)
param_scheduler = [
    dict(type='LinearLR', start_factor=0.01, by_epoch=False, begin=0, end=warmup_iters),
    dict(type='PolyLR', eta_min=0., power=0.9, by_epoch=False, begin=warmup_iters, end=max_iters)
]
