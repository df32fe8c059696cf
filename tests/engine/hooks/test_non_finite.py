"""Gradients that are not finite although the loss is."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import OptimWrapper

from cvt_dense.engine import NonFiniteLossHook
from cvt_dense.engine.hooks.non_finite import MAX_SKIPPED_STEPS
from cvt_dense.errors import UserError


def train(scaler, bad_steps, iterations):
    """Steps of one weight whose gradient is infinite in ``bad_steps``, the loss 0; as AmpOptimWrapper does them."""
    weight = torch.ones(1, requires_grad=True)
    wrapper = OptimWrapper(torch.optim.SGD([weight], lr=.1), accumulative_counts=2)
    runner = SimpleNamespace(optim_wrapper=wrapper, iter=0)
    hook = NonFiniteLossHook()
    hook.before_train(runner)
    for runner.iter in range(iterations):
        wrapper._inner_count += 1
        if wrapper.should_update():
            weight.grad = torch.full((1, ), torch.inf if runner.iter // 2 in bad_steps else 1.)
            scaler.scale(torch.zeros(1))
            scaler.step(wrapper.optimizer)
            scaler.update()
        hook.after_train_iter(runner, runner.iter, outputs=dict(loss=torch.zeros(())))
    return weight


def test_a_scaler_that_skips_every_step_stops_the_run():
    with pytest.raises(UserError, match=f'the last {MAX_SKIPPED_STEPS} optimizer steps up to iteration '
                                        f'{2 * (MAX_SKIPPED_STEPS + 3)} were skipped, because the gradients'):
        train(torch.amp.GradScaler('cpu'), range(3, 1000), 1000)


def test_single_skipped_steps_are_normal():
    bad = [*range(40), *range(41, 60)]
    assert train(torch.amp.GradScaler('cpu'), bad, 140).isfinite()


def test_without_a_scaler_the_weights_show_it():
    weight = train(torch.amp.GradScaler('cpu', enabled=False), [3], 20)
    with pytest.raises(UserError, match='1 weights are not finite'):
        NonFiniteLossHook().before_save_checkpoint(SimpleNamespace(iter=5), dict(state_dict=dict(weight=weight)))
