"""Decide whether a resumed run must repeat the evaluation that was due when its checkpoint was saved."""
from collections.abc import Iterable

from mmengine.runner import EpochBasedTrainLoop, Runner

EVALUATED = 'last_evaluation'  # entry of checkpoints: the epoch or iteration whose evaluation was the last to end


def note_evaluation(runner: Runner) -> None:
    """Record in all later checkpoints that they contain the result of this evaluation."""
    by_epoch = isinstance(runner.train_loop, EpochBasedTrainLoop)
    runner.message_hub.update_info(EVALUATED, runner.epoch if by_epoch else runner.iter)


def misses_evaluation(runner: Runner) -> bool:
    """Return whether a resumed run must begin with an evaluation, whose result its checkpoint does not contain.

    Without that evaluation the best score would differ from that of an uninterrupted run.
    """
    loop, step, end = runner.train_loop, runner.iter, runner.max_iters
    if isinstance(loop, EpochBasedTrainLoop):
        step, end = runner.epoch, runner.max_epochs
        if runner.iter != step * len(loop.dataloader):
            return False  # inside an epoch
    if step == 0 or runner.val_loop is None:
        return False
    due = step >= loop.val_begin and (step % loop.val_interval == 0 or step == end)
    return due and runner.message_hub.runtime_info.get(EVALUATED) != step


def found_nothing(metrics: Iterable[str]) -> bool:
    """Return whether an evaluation has no result: MMDetection's scores have none if not a single object is detected.

    Args:
        metrics: names, of which other hooks add those with ``raw/`` and ``val/``.
    """
    return all(name.startswith(('raw/', 'val/')) for name in metrics)
