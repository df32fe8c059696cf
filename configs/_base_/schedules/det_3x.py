# 36 epochs, learning rate a tenth after 27 and 33, otherwise the 1x schedule.
_base_ = './det_1x.py'

max_epochs = 36
train_cfg = dict(max_epochs=max_epochs)

param_scheduler = [
    _base_.param_scheduler[0],
    dict(_base_.param_scheduler[1], end=max_epochs,
         milestones=[round(max_epochs * 3 / 4), round(max_epochs * 11 / 12)])
]
