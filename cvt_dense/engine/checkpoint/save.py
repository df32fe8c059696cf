"""Write checkpoints atomically, and only between the steps of the optimizer."""
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast, is_main_process
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import Runner

from ...atomic import PREFIX, write_atomically
from ...metrics import Metric
from ...registry import HOOKS
from ..schedules import data_shape
from .files import ATOMIC, PREEMPTED
from .resume import note_evaluation


@HOOKS.register_module()
class SafeCheckpointHook(Hook):
    """Save checkpoints that survive a crash, a stop signal and a move to another machine.

    It takes the place of MMEngine's ``CheckpointHook``; :class:`.stop.StopHook` and :class:`.resume.ResumeHook` stop
    and resume the run.

    - Checkpoints and ``last_checkpoint`` are written atomically; an old or less good checkpoint is deleted after that,
      not before.
    - While gradients are being accumulated, checkpoints wait for the next step of the optimizer, after which there are
      no gradients to save. If an epoch ends between two steps, ``epoch_N.pth`` is written some iterations into epoch
      N + 1, from where a resumed run continues; the best checkpoint holds exactly what was evaluated.
    - Before the first evaluation the run is saved, because mistakes in the data may end an evaluation.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.

    Args:
        interval: epochs or iterations between two checkpoints; -1: there is only the last one.
        by_epoch: whether ``interval`` counts epochs.
        max_keep_ckpts: number of checkpoints that are kept; -1: all.
        save_best: metric, or metrics, whose best checkpoint is kept too; 'auto': the usual metric of the task.
        rule: 'less' or 'greater', whichever value of ``save_best`` is better, or one for each metric. Default: as the
            metric's name tells.

    Raises:
        UserError: the rule of a metric is not known, or an evaluation lacks a metric of ``save_best``.
    """

    priority = 'VERY_LOW'

    def __init__(self, interval: int = -1, by_epoch: bool = True, max_keep_ckpts: int = -1,
                 save_best: str | Sequence[str] | None = None, rule: str | Sequence[str | None] | None = None):
        self.interval, self.by_epoch = interval, by_epoch
        self.max_keep_ckpts, self.filename = max_keep_ckpts, 'epoch_{}.pth' if by_epoch else 'iter_{}.pth'
        names = [save_best] if isinstance(save_best, str) else list(save_best or ())
        rules = [rule] * len(names) if rule is None or isinstance(rule, str) else rule
        self.metrics = [Metric('save_best', *pair) for pair in zip(names, rules, strict=True)]
        self.due: int | None = None  # epoch or iteration of a checkpoint that waits for the optimizer's step
        # Whether a failing evaluation would lose no training, and whether the newest checkpoint is PREEMPTED.
        self.saved, self.preempted = True, False

    def before_train(self, runner: Runner) -> None:
        self.folder = Path(runner.work_dir)
        self.saved = False
        for metric in self.metrics:
            metric.check(getattr(runner.val_loop, 'evaluator', None))
        if is_main_process():
            for path in self.folder.glob(f'{PREFIX}*'):
                path.unlink()
        runner.logger.info(f'Checkpoints will be saved to {self.folder}.')

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        if not self.by_epoch and (self.every_n_train_iters(runner, self.interval)
                                  or self._ends(runner, self.is_last_train_iter(runner))):
            self.due = runner.iter + 1
        self._save_due(runner, runner.epoch, runner.iter + 1)

    def after_train_epoch(self, runner: Runner) -> None:
        if self.by_epoch and (self.every_n_epochs(runner, self.interval)
                              or self._ends(runner, self.is_last_train_epoch(runner))):
            self.due = runner.epoch + 1
            self._save_due(runner, runner.epoch + 1, runner.iter)

    def _ends(self, runner: Runner, last: bool = False) -> bool:
        """Return whether the training ends, here at its ``last`` step or by EarlyStoppingHook."""
        return last or getattr(runner.train_loop, 'stop_training', False)

    def _save_due(self, runner: Runner, epoch: int, iteration: int) -> None:
        """Write the checkpoint that is due, unless gradients are being accumulated for a step that will come.

        Args:
            runner: the runner, which has done ``epoch`` whole epochs and ``iteration`` iterations.
        """
        if self.due is None or not (runner.optim_wrapper.should_update() or self._ends(runner)):
            return
        step, self.due, self.saved, self.preempted = self.due, None, True, False
        kept = [old for old in runner.message_hub.runtime_info.get('keep_ckpt_ids', []) if old != step] + [step]
        # The new checkpoint still lists the outdated ones, which a resumed run deletes if this one is killed now.
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        save_run(runner, self.filename.format(step), epoch, iteration)
        _delete(self.folder / PREEMPTED)
        if self.max_keep_ckpts > 0:
            for step in kept[:-self.max_keep_ckpts]:
                _delete(self.folder / self.filename.format(step))
            runner.message_hub.update_info('keep_ckpt_ids', kept[-self.max_keep_ckpts:])

    def before_val(self, runner: Runner) -> None:
        if not self.saved and runner.optim_wrapper.should_update():
            self.saved = self.preempted = True
            save_run(runner, PREEMPTED, runner.epoch, runner.iter)

    def before_val_epoch(self, runner: Runner) -> None:
        share_buffers(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        if not hasattr(self, 'folder'):  # Runner.val() without a training
            return
        note_evaluation(runner)
        hub, info = runner.message_hub, runner.message_hub.runtime_info
        step, best = runner.epoch if self.by_epoch else runner.iter, {}
        for metric in self.metrics:
            score = metric.score(metrics)
            best_score, best_file = f'best_score_{metric.name}', f'best_ckpt_{metric.name}'
            if score is None:
                runner.logger.warning(f'The evaluation has no result for {metric.name}: the model finds no object yet, '
                                      'or format_only is set. It does not count for the best checkpoint.')
            elif score > metric.sign * info.get(best_score, metric.sign * float('-inf')):
                file = self.folder / f'best_{metric.name}_{self.filename.format(step)}'.replace('/', '_')
                best[file] = info.get(best_file)
                hub.update_info(best_score, metric.sign * score)
                hub.update_info(best_file, str(file))
        for file in best:
            runner.save_checkpoint(str(self.folder), file.name, save_optimizer=False, save_param_scheduler=False,
                                   meta=dict(epoch=runner.epoch, iter=runner.iter), backend_args=ATOMIC)
            runner.logger.info(f'The best checkpoint is now {file.name}.')
        complete = self.preempted and runner.iter >= runner.max_iters  # resumed to repeat its last evaluation
        if self._ends(runner, complete) or best and info.get('keep_ckpt_ids', [])[-1:] == [step]:
            self.due = step  # saved again, because a resumed run needs the best score and the file's name
            self._save_due(runner, runner.epoch, runner.iter)
        for file, outdated in best.items():
            if outdated and Path(outdated).name != file.name:
                _delete(self.folder / Path(outdated).name)  # a copy of a run's folder still names the original's file


def save_run(runner: Runner, filename: str, epoch: int, iteration: int) -> None:
    """Write a checkpoint of the whole run; from then on ``last_checkpoint`` names it.

    Args:
        runner: the runner, which has done ``epoch`` whole epochs and ``iteration`` iterations.
        filename: name of the checkpoint.
    """
    share_buffers(runner)
    runner.save_checkpoint(runner.work_dir, filename, backend_args=ATOMIC,
                           meta=dict(data_shape(runner), epoch=epoch, iter=iteration))
    if is_main_process():
        write_atomically(Path(runner.work_dir, 'last_checkpoint'), str(Path(runner.work_dir, filename)))


def share_buffers(runner: Runner) -> None:
    """Copy the buffers of the model and of its averages (EMA) from the first process to all others."""
    if runner.world_size > 1:
        averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        for model in (runner.model, *averages):
            for buffer in model.buffers():
                broadcast(buffer)


def _delete(path: Path) -> None:
    if is_main_process():
        path.unlink(missing_ok=True)
