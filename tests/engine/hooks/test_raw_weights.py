"""The raw weights beside averaged ones: kept from the file for a test, not through a resumed training."""
import pytest
import torch
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import nn

from cvt_dense.engine.hooks.raw_weights import RawWeightsHook


@pytest.mark.parametrize('training', [False, True])
def test_only_a_test_keeps_the_raw_weights_of_the_file(training):
    runner = Runner.__new__(Runner)
    runner._train_loop = EpochBasedTrainLoop.__new__(EpochBasedTrainLoop) if training else dict(max_epochs=1)
    hook = RawWeightsHook()
    raw = nn.Linear(1, 1).state_dict()
    hook.after_load_checkpoint(runner, dict(ema_state_dict={f'module.{key}': raw[key] for key in raw}))
    assert (hook.raw_state is None) == training
    assert training or torch.equal(hook.raw_state['weight'], raw['weight'])
