"""Check that a training's epochs end, that it saves, and that its learning rate follows the schedules to their end."""
from typing import Any

from mmengine.config import Config
from mmengine.hooks import CheckpointHook
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from ...engine.checkpoint import SafeCheckpointHook
from ...engine.runner import RunnerMixin
from ...engine.schedules import Curve
from ...errors import UserError

NOTHING = 1e-6  # of the highest learning rate, by which nothing is learnt


def check_schedule(
        runner: RunnerMixin, cfg: Config, datasets: dict[str, Any], content: dict[str, Any] | None) -> None:
    """Compare the schedules of a training that has not started with its length; a warning tells of a difference.

    Raises:
        UserError: an epoch never ends, a schedule never moves, nothing is saved before the end, or nothing is learnt
            after the end of the schedules.
    """
    if 'train' not in datasets:
        return
    sampler = runner.train_dataloader.batch_sampler.sampler
    if isinstance(runner.train_loop, EpochBasedTrainLoop) and hasattr(sampler, '_infinite_indices'):
        raise UserError(f'train_dataloader.sampler: {type(sampler).__name__} is endless, and train_cfg counts epochs: '
                        "the first would never end. Set sampler=dict(_delete_=True, type='DefaultSampler', "
                        "shuffle=True), or count iterations with train_cfg.type='IterBasedTrainLoop' and max_iters.")
    saving = [hook for hook in runner.hooks if isinstance(hook, (CheckpointHook, SafeCheckpointHook))]
    if isinstance(runner.train_loop, IterBasedTrainLoop) and any(
            hook.by_epoch and hook.interval > 0 for hook in saving):
        raise UserError('default_hooks.checkpoint counts epochs, and train_cfg iterations: nothing would be saved '
                        'before the end. Set default_hooks.checkpoint.by_epoch=False, and interval in iterations.')
    warning = runner.learning_rates and find_mismatch(runner.learning_rates)
    if warning:
        runner.logger.warning(warning)


def find_mismatch(curve: Curve) -> str:
    """Return what is wrong with the learning rates of a run, or an empty text.

    Raises:
        UserError: as :func:`check_schedule`.
    """
    if curve.idle:
        raise UserError(f'param_scheduler.{curve.idle[0]} counts epochs, and train_cfg iterations: it would never '
                        'move. Give it by_epoch=False, with its begin, end and milestones in iterations.')
    rates = [rate for _, rate in curve.points]
    settled, last = curve.points[-1]
    highest = max(rates)
    if curve.beyond is not None:
        after = f'goes on to {curve.beyond[1]:.3g} at {curve.place(curve.beyond[0])}'
    elif last < highest and (curve.end < curve.length or settled < curve.length / 2):
        after = f'changes nothing after {curve.place(settled)}'
    elif last > 1.05 * min(rates[rates.index(highest):]):
        after = f'rises again: {curve}'
    else:
        return ''
    text = (f'The training ends at {curve.place(curve.length)} with a learning rate of {last:.3g}, and param_scheduler '
            f'{after}. Set its end to the length of the training, in a template by max_iters.')
    if curve.end < curve.length and last < NOTHING * highest:
        raise UserError(text)
    return text
