"""Decide whether a resumed run must repeat the evaluation that was due when its checkpoint was saved."""
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...fileio import write_atomically

# File in the work dir, and entry of checkpoints: the epoch or iteration whose evaluation was the last to end.
EVALUATED = 'last_evaluation'


def _step(runner: Runner) -> int:
    return runner.epoch if isinstance(runner.train_loop, EpochBasedTrainLoop) else runner.iter


def note_evaluation(runner: Runner) -> None:
    """Record in all later checkpoints that they contain the result of this evaluation."""
    runner.message_hub.update_info(EVALUATED, _step(runner))


def record_evaluation(runner: Runner) -> None:
    """Record in the work directory that this evaluation, and what is saved after it, is complete."""
    if is_main_process():
        write_atomically(Path(runner.work_dir, EVALUATED), str(_step(runner)))


def misses_evaluation(runner: Runner) -> bool:
    """Return whether a resumed run must begin with an evaluation, whose result its checkpoint does not contain.

    Without that evaluation the best score would differ from that of an uninterrupted run. The last evaluation of a run
    need not be repeated if it was completed.
    """
    if runner.iter == 0 or runner.val_loop is None:
        return False
    loop = runner.train_loop
    step, end = _step(runner), runner.max_iters
    if isinstance(loop, EpochBasedTrainLoop):
        if runner.iter != step * len(loop.dataloader):
            return False  # inside an epoch
        end = runner.max_epochs
    due = step >= loop.val_begin and (step % loop.val_interval == 0 or step == end)
    record = Path(runner.work_dir, EVALUATED)
    completed = step == end and record.is_file() and record.read_text() == str(step)
    return due and not completed and runner.message_hub.runtime_info.get(EVALUATED) != step
