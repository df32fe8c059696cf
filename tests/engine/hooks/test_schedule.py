"""A training that is too short for its schedule says so, and what would fit."""
import logging
from types import SimpleNamespace

import torch
from mmengine.config import Config
from mmengine.optim import CosineAnnealingLR, LinearLR, MultiStepLR, OptimWrapper, PolyLR
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from cvt_dense.engine import ScheduleHook


def said(caplog, epochs, iterations, *schedulers, **variables):
    """What the hook says before a training of ``epochs`` (None: of iterations alone)."""
    wrapper = OptimWrapper(torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.))
    loop = object.__new__(IterBasedTrainLoop if epochs is None else EpochBasedTrainLoop)
    runner = SimpleNamespace(train_loop=loop, max_epochs=epochs or 1, max_iters=iterations, cfg=Config(variables),
                             logger=logging.getLogger('schedule'),
                             param_schedulers=[build(wrapper) for build in schedulers])
    caplog.clear()
    ScheduleHook().before_train(runner)
    return caplog.text


def warm_up(wrapper):
    return LinearLR(wrapper, start_factor=0.1, end=1000, by_epoch=False)


def steps(wrapper):
    return MultiStepLR(wrapper, milestones=[8, 11], end=12)


def test_detection(caplog):
    assert said(caplog, 12, 12_000, warm_up, steps, max_epochs=12) == ''
    text = said(caplog, 3, 24, warm_up, steps, max_epochs=12)
    assert ('is longer than the training of 3 epochs, 24 iterations: LinearLR goes on until iteration 1000; '
            'MultiStepLR has its steps after epochs 8, 11. For one that fits set max_epochs, of which this config '
            'makes it, instead of train_cfg.max_epochs; or param_scheduler.') in text
    # A step after the last epoch is none; the variable was set already, so it is not what would help.
    text = said(caplog, 11, 12_000, warm_up, steps, max_epochs=11)
    assert 'MultiStepLR has its step after epoch 11. For one that fits set param_scheduler.' in text


def test_segmentation_and_classification(caplog):
    text = said(caplog, None, 100, lambda w: PolyLR(w, begin=10, end=160_000, by_epoch=False), max_iters=160_000)
    assert 'the training of 100 iterations: PolyLR goes on until iteration 160000' in text and 'set max_iters' in text
    assert said(caplog, None, 100, lambda w: PolyLR(w, end=100, by_epoch=False), LinearLR) == ''
    text = said(caplog, 2, 20, lambda w: CosineAnnealingLR.build_iter_from_epoch(
        w, T_max=300, end=300, epoch_length=10))
    assert 'CosineAnnealingLR goes on until iteration 3000' in text
