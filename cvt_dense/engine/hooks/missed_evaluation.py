"""Tells whether the evaluation that was due with the last checkpoint came to its end."""
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.runner import EpochBasedTrainLoop, Runner

from ..atomic_files import AtomicLocalBackend

EVALUATED = 'last_evaluation'  # file with the epoch or iteration whose evaluation was the last to end


def record_evaluation(runner: Runner) -> None:
    """Notes in the work dir that the evaluation of now has come to its end."""
    if is_main_process():
        step = runner.epoch if isinstance(runner.train_loop, EpochBasedTrainLoop) else runner.iter
        AtomicLocalBackend().put(str(step).encode(), Path(runner.work_dir, EVALUATED))


def misses_evaluation(runner: Runner) -> bool:
    """Whether a resumed run stands where an evaluation is due whose end was not recorded."""
    if runner.iter == 0 or runner.val_loop is None:
        return False
    loop = runner.train_loop
    step, end = runner.iter, runner.max_iters
    if isinstance(loop, EpochBasedTrainLoop):
        if step != runner.epoch * len(loop.dataloader):
            return False  # inside an epoch
        step, end = runner.epoch, runner.max_epochs
    due = step >= loop.val_begin and (step % loop.val_interval == 0 or step == end)
    evaluated = Path(runner.work_dir, EVALUATED)
    return due and not (evaluated.is_file() and evaluated.read_text() == str(step))
