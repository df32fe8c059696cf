"""Tells whether a resumed run must make up for the evaluation that was due with its checkpoint."""
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.runner import EpochBasedTrainLoop, Runner

from ..atomic_files import AtomicLocalBackend

# File in the work dir, and entry of checkpoints: the epoch or iteration whose evaluation was the last to end.
EVALUATED = 'last_evaluation'


def _step(runner: Runner) -> int:
    return runner.epoch if isinstance(runner.train_loop, EpochBasedTrainLoop) else runner.iter


def note_evaluation(runner: Runner) -> None:
    """From now on, checkpoints say that they hold the result of this evaluation: call before they are written."""
    runner.message_hub.update_info(EVALUATED, _step(runner))


def record_evaluation(runner: Runner) -> None:
    """Notes in the work dir that the evaluation of now, and what is saved after it, have come to their end."""
    if is_main_process():
        AtomicLocalBackend().put(str(_step(runner)).encode(), Path(runner.work_dir, EVALUATED))


def misses_evaluation(runner: Runner) -> bool:
    """Whether a resumed run stands where an evaluation is due whose result its checkpoint does not hold.

    Without it, the best score, and whatever waits for a better one, would not go on as in an undisturbed run.
    After the last evaluation nothing goes on: there it is enough that it came to its end.
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
    ended = step == end and record.is_file() and record.read_text() == str(step)
    return due and not ended and runner.message_hub.runtime_info.get(EVALUATED) != step
