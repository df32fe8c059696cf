"""Says what of the learning rate's schedule a training is too short for."""
from collections.abc import Iterator

from mmengine.hooks import Hook
from mmengine.optim import MultiStepParamScheduler
from mmengine.optim.scheduler.param_scheduler import INF
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...registry import HOOKS


@HOOKS.register_module()
class ScheduleHook(Hook):
    """Says in the log, before the first iteration, what of the schedule comes after the training's end.

    ``train_cfg.max_epochs=3`` alone leaves milestones at epochs 8 and 11 where they are, so the learning rate never
    falls. For a quick try that is right, for a result it is not.
    """

    def before_train(self, runner: Runner) -> None:
        late = list(_beyond(runner))
        if not late:
            return
        epochs = isinstance(runner.train_loop, EpochBasedTrainLoop)
        name, total = ('max_epochs', runner.max_epochs) if epochs else ('max_iters', runner.max_iters)
        follows = name in runner.cfg and runner.cfg[name] != total
        runner.logger.warning(
            f"The learning rate's schedule is longer than the training of "
            f'{f"{total} epochs, " if epochs else ""}{runner.max_iters} iterations: {"; ".join(late)}. For one that '
            f'fits set {f"{name}, of which this config makes it, instead of train_cfg.{name}; or " if follows else ""}'
            'param_scheduler.')


def _beyond(runner: Runner) -> Iterator[str]:
    """What each scheduler would do after the training's end."""
    schedulers = runner.param_schedulers
    if isinstance(schedulers, dict):  # of several optimizers
        schedulers = [scheduler for several in schedulers.values() for scheduler in several]
    for scheduler in schedulers or ():
        total, unit = (runner.max_epochs, 'epoch') if scheduler.by_epoch else (runner.max_iters, 'iteration')
        if isinstance(scheduler, MultiStepParamScheduler):
            steps = sorted(step for step in scheduler.milestones if step >= total)
            if steps:
                s = 's' * (len(steps) > 1)
                yield f'{type(scheduler).__name__} has its step{s} after {unit}{s} {", ".join(map(str, steps))}'
        elif total < scheduler.end < INF:
            yield f'{type(scheduler).__name__} goes on until {unit} {scheduler.end}'
