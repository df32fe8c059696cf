"""EMAHook: accumulated iterations are one step of the average."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.hooks import EMAHook as MMEngineEMAHook
from mmengine.optim import OptimWrapper

from cvt_dense.engine import EMAHook


def average(hook_type, accumulated: int, steps: int = 6) -> tuple[torch.Tensor, int]:
    """Averaged weights and their number of updates after as many optimizer steps, each on the same 4 samples."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    samples = torch.randn(steps, 4, 3)
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.5), accumulative_counts=accumulated)
    runner = SimpleNamespace(model=model, optim_wrapper=wrapper, iter=0, max_iters=steps * accumulated)
    hook = hook_type(momentum=0.1)
    hook.before_run(runner)
    model.weight.data += 1  # as init_weights() does then
    hook.before_train(runner)
    assert hook_type is MMEngineEMAHook or torch.equal(hook.ema_model.module.weight, model.weight)
    for batch in samples.view(steps * accumulated, 4 // accumulated, 3):
        with wrapper.optim_context(model):
            loss = model(batch).square().mean()
        wrapper.update_params(loss)
        hook.after_train_iter(runner, runner.iter)
        runner.iter += 1
    return hook.ema_model.module.weight, int(hook.ema_model.steps)


def test_an_evaluation_has_the_buffers_of_now():
    model, hook = torch.nn.BatchNorm1d(3), EMAHook()
    runner = SimpleNamespace(model=model, iter=0)
    hook.before_run(runner)
    model.running_mean += 1  # in an iteration without a step
    hook.before_val_epoch(runner)
    assert torch.equal(hook.ema_model.module.running_mean, model.running_mean)


@pytest.mark.parametrize('accumulated', [2, 4])
def test_accumulated_iterations_count_once(accumulated):
    expected, steps = average(MMEngineEMAHook, 1)
    assert steps == 6
    weight, steps = average(EMAHook, accumulated)
    assert steps == 6
    torch.testing.assert_close(weight, expected)
    assert torch.equal(average(EMAHook, 1)[0], expected)
