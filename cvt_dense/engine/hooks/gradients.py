"""Carries gradients that are still being accumulated from a saved run to the resumed one."""
from typing import Any

import torch
from mmengine.dist import all_gather, is_main_process
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner


def _parameters(runner: Runner) -> dict[str, torch.nn.Parameter]:
    model = runner.model.module if is_model_wrapper(runner.model) else runner.model
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def accumulated_gradients(runner: Runner) -> list[dict[str, torch.Tensor]]:
    """Gradients that no optimizer step has used yet: a dict by parameter's name for each process.

    The alternative, a step of the optimizer at each epoch's end, would make that step's batch smaller and the
    number of steps another one, and would not help a run that is stopped inside an epoch. Each process has
    gradients of its own until the step, so all are kept: a resumed run goes on bit for bit.

    All processes have to call it; only the main process gets the dicts, on the CPU. Empty after a step.
    """
    if runner.optim_wrapper.should_update():
        return []
    gathered: list[dict[str, torch.Tensor]] = [{} for _ in range(runner.world_size)]
    parameters = _parameters(runner)
    # A part of the model that a process's images did not reach has no gradient there.
    present = all_gather(torch.tensor([value.grad is not None for value in parameters.values()]))
    for number, (name, value) in enumerate(parameters.items()):
        if any(flags[number] for flags in present):
            gradient = torch.zeros_like(value) if value.grad is None else value.grad
            for rank, one in enumerate(all_gather(gradient)):
                if is_main_process() and present[rank][number]:
                    gathered[rank][name] = one.to('cpu', copy=True)
    return gathered if is_main_process() else []


def restore_gradients(runner: Runner, saved: list[dict[str, torch.Tensor]], meta: dict[str, Any]) -> None:
    """Gives each process the gradients that it had in the saved run.

    Args:
        runner: has loaded its checkpoint; called before its first iteration.
        saved: as :func:`accumulated_gradients` returned it. It is not used, and the log says so, where the run goes
            on with other numbers of processes or accumulated iterations, or from another iteration.
        meta: the checkpoint's ``meta``.
    """
    if not saved:
        return
    now = (runner.world_size, runner.cfg.optim_wrapper.get('accumulative_counts', 1), runner.iter)
    if now != (len(saved), meta['accumulative_counts'], meta['iter']):
        runner.logger.warning(
            'Gradients accumulated since the last step of the optimizer were left out: they belong to other numbers '
            'of processes or accumulated iterations. The next step has less than a full batch.')
        return
    parameters = _parameters(runner)
    for name, gradient in saved[runner.rank].items():
        parameters[name].grad = gradient.to(parameters[name].device, copy=True)
    runner.logger.info('The gradients accumulated since the last step of the optimizer were loaded too.')
