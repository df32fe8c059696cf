"""Gradients and weights that are not finite although the loss is, and images that cannot be read."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.optim import OptimWrapper

from cvt_dense.engine import NonFiniteLossHook, UnreadableImagesHook
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
    with pytest.raises(UserError, match=f'{MAX_SKIPPED_STEPS} .* iteration {2 * (MAX_SKIPPED_STEPS + 3)}'):
        train(torch.amp.GradScaler('cpu'), range(3, 1000), 1000)


def test_without_a_scaler_the_weights_show_it():
    weight = train(torch.amp.GradScaler('cpu', enabled=False), [3], 20)
    with pytest.raises(UserError, match='1 weights are not finite'):
        NonFiniteLossHook().before_save_checkpoint(SimpleNamespace(iter=5), dict(state_dict=dict(weight=weight)))


def test_a_file_is_counted_once_whatever_the_reason():
    """Pillow's reason for a file read through a backend contains a memory address."""
    warnings = []
    runner = SimpleNamespace(train_dataloader=SimpleNamespace(dataset=range(100)),
                             logger=SimpleNamespace(warning=warnings.append))
    hook = UnreadableImagesHook(max_share=0.02)
    for epoch in range(20):
        hook.before_train_iter(runner, 0, dict(unreadable=['', f'a/1.png\tno image file <BytesIO at 0x7f{epoch}>']))
        hook.after_train_epoch(runner)
    assert sum('a/1.png' in text for text in warnings) == 1
    with pytest.raises(UserError, match='3 of the 100'):
        hook.before_train_iter(runner, 0, dict(unreadable=['a/2.png\tx', 'a/3.png\ty\na/2.png\tz']))
