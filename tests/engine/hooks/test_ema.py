"""EMAHook: accumulated iterations are one step of the average, which all ranks agree on."""
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from mmengine.hooks import EMAHook as MMEngineEMAHook
from mmengine.optim import OptimWrapper
from torch.distributed._local_tensor import LocalTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from cvt_dense.engine import EMAHook
from cvt_dense.engine.checkpoint.save import share_buffers
from cvt_dense.models import CvT


def average(hook_type, accumulated: int, steps: int = 6) -> tuple[torch.Tensor, int]:
    """Averaged weights and their number of updates after as many optimizer steps, each on the same 4 samples."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    samples = torch.randn(steps, 4, 3)
    wrapper = OptimWrapper(torch.optim.SGD(model.parameters(), lr=0.5), accumulative_counts=accumulated)
    runner = SimpleNamespace(model=model, optim_wrapper=wrapper, iter=0)
    hook = hook_type(momentum=0.1)
    hook.before_run(runner)
    for batch in samples.view(steps * accumulated, 4 // accumulated, 3):
        with wrapper.optim_context(model):
            loss = model(batch).square().mean()
        wrapper.update_params(loss)
        hook.after_train_iter(runner, runner.iter)
        runner.iter += 1
    return hook.ema_model.module.weight, int(hook.ema_model.steps)


@pytest.mark.parametrize('accumulated', [2, 4])
def test_accumulated_iterations_count_once(accumulated):
    expected, steps = average(MMEngineEMAHook, 1)
    assert steps == 6
    weight, steps = average(EMAHook, accumulated)
    assert steps == 6
    torch.testing.assert_close(weight, expected)
    assert torch.equal(average(EMAHook, 1)[0], expected)


def disagreeing(module: torch.nn.Module) -> set[str]:
    """Return the kinds of tensors of which not all ranks have the same."""
    return {name.rpartition('.')[2] for name, value in module.state_dict().items()
            if len({rank.numpy().tobytes() for rank in value._local_tensors.values()}) > 1}


def test_ranks_agree_on_averages_though_their_images_differ(ranks=4):
    """By PyTorch's local tensors, each of which holds those of all ranks; gradients are reduced as by DDP."""
    dist.init_process_group('fake', store=FakeStore(), rank=0, world_size=ranks)
    model = CvT(dict(embed_dims=[8, 24], depths=[1, 1], num_heads=[1, 3])).train()
    try:
        with LocalTensorMode(ranks) as mode:
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                local = mode.rank_map(lambda rank, tensor=tensor: tensor.detach().clone())
                owner, _, name = name.rpartition('.')
                setattr(model.get_submodule(owner), name,
                        torch.nn.Parameter(local) if isinstance(tensor, torch.nn.Parameter) else local)
            wrapper = OptimWrapper(torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False))
            hook = EMAHook(momentum=0.1, update_buffers=True)
            runner = SimpleNamespace(model=model, optim_wrapper=wrapper, iter=0, world_size=ranks, hooks=[hook])
            hook.before_run(runner)
            for _ in range(2):
                images = mode.rank_map(lambda rank: torch.rand(2, 3, 32, 32) * (1 + rank))
                sum(out.square().mean() for out in model(images)).backward()
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                wrapper.step()
                wrapper.zero_grad()
                hook.after_train_iter(runner, runner.iter)
                runner.iter += 1
            assert disagreeing(hook.ema_model.module) == {'running_mean', 'running_var'}
            share_buffers(runner)
            assert not disagreeing(hook.ema_model.module) and not disagreeing(model)
    finally:
        dist.destroy_process_group()
