"""Write checkpoints atomically, and let runs stop and continue at any moment."""
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mmengine.dist import barrier, broadcast, is_main_process
from mmengine.fileio import get_file_backend, join_path
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.runner import Runner

from ...errors import UserError
from ...fileio import PREFIX, write_atomically
from ...registry import HOOKS
from .evaluation import misses_evaluation, note_evaluation, record_evaluation
from .resume import adapt_schedules, data_shape, move_to_same_data, next_sizes, restore_sizes, skip_seen_batches
from .stop import StopSignals


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """MMEngine's ``CheckpointHook`` for runs that get killed, stopped, and continued elsewhere.

    - Local checkpoints and ``last_checkpoint`` are written atomically; an old or less good checkpoint is deleted
      after that, not before.
    - SIGTERM and SIGUSR1 (Slurm's ``--signal=USR1@120``) save ``preempted.pth`` after the next iteration, with
      several processes at most 10 iterations later whichever of them got it, and end the run with exit code 0; with
      ``RDZV`` of tools/dist_train.sh, processes that did not get it end with 1, and torchrun restarts them. An
      evaluation is interrupted, and repeated by the resumed run; only metrics that are being computed are
      completed. The resumed run continues with the next batch of the same epoch. Batches are neither repeated
      nor left out, since the samplers depend on seed and epoch alone; only samplers that ignore the seed would
      (:class:`SeedHook` names them). The log numbers the rest of that epoch's batches from 1.
    - While gradients are being accumulated, checkpoints and stops wait for the next step of the optimizer, after
      which there are none to save. If an epoch ends between two steps, ``epoch_N.pth`` is written some iterations
      into epoch N + 1, from where a resumed run continues; the best checkpoint holds exactly what was evaluated.
    - The size that ``BatchSyncRandomResize`` has drawn for the next batch is saved too.
    - A resumed run repeats an evaluation that was due with its checkpoint, unless the checkpoint has the result.
    - Before the first evaluation the run is saved, because mistakes in the data may end an evaluation.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.
    - A run may be continued with other numbers of processes or images: the epoch continues at the same
      fraction of the data, schedules are moved to the same epoch, and the log reports it. The learning
      rate is scaled to the new total batch where ``auto_scale_lr`` is enabled.

    Args: as for MMEngine's ``CheckpointHook``, except ``file_client_args``, which MMEngine deprecates.
    """

    PREEMPTED = 'preempted.pth'

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.stop_signals = StopSignals()
        self.saved_meta: dict[str, Any] = {}
        self.due: int | None = None  # epoch or iteration of a checkpoint that waits for the optimizer's step
        self.saved = 0  # iterations that the last checkpoint of this process has
        self.evaluated = False  # whether this process has begun an evaluation
        self.stopping = 0  # the signal after which the run ends with the optimizer's next step

    # -- resuming ------------------------------------------------------------------------------------

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = dict(checkpoint.get('meta', {}))
        if not isinstance(runner.optim_wrapper, dict | None):  # built: the run will train
            move_to_same_data(runner, checkpoint.get('meta', {}))

    def before_train(self, runner: Runner) -> None:
        folder = str(self.out_dir or runner.work_dir)
        if self.backend_args is None and '://' not in folder:
            self.backend_args = dict(backend='cvt_dense.atomic')
        self.file_backend = get_file_backend(folder, backend_args=self.backend_args)
        if folder != runner.work_dir:
            folder = self.file_backend.join_path(folder, Path(runner.work_dir).name)
        self.out_dir = folder
        if is_main_process() and '://' not in folder:
            for path in Path(folder).glob(f'{PREFIX}*'):
                path.unlink()
        runner.logger.info(f'Checkpoints will be saved to {folder}.')
        if runner.iter > 0:
            skip_seen_batches(runner)
            adapt_schedules(runner, self.saved_meta)
            restore_sizes(runner, self.saved_meta.get('next_sizes', []))
            self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
            self._delete_outdated(runner)
        self.stop_signals.watch(runner)
        if misses_evaluation(runner):
            runner.logger.info('The checkpoint lacks the result of the evaluation that was due with it. This '
                               'evaluation runs now.')
            runner.val_loop.run()
            step, end = (runner.epoch, runner.max_epochs) if self.by_epoch else (runner.iter, runner.max_iters)
            if self.interval > 0 and (step - self.save_begin) % self.interval == 0 or self.save_last and step == end:
                self.due = step
                self._save_due(runner, runner.epoch, runner.iter)

    # -- saving --------------------------------------------------------------------------------------

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        iteration = runner.iter + 1
        if not self.by_epoch and (self.every_n_train_iters(runner, self.interval, self.save_begin)
                                  or self.save_last and self.is_last_train_iter(runner)):
            self.due = iteration
        self._save_due(runner, runner.epoch, iteration)
        self.stopping = self.stopping or self.stop_signals.after_train_iter(runner)
        if self.stopping and runner.optim_wrapper.should_update():
            self._stop(runner, self.stopping, iteration)

    def after_train_epoch(self, runner: Runner) -> None:
        if self.by_epoch and (self.every_n_epochs(runner, self.interval, self.save_begin)
                              or self.save_last and self.is_last_train_epoch(runner)):
            self.due = runner.epoch + 1
            self._save_due(runner, runner.epoch + 1, runner.iter)

    def _save_due(self, runner: Runner, epoch: int, iteration: int) -> None:
        """Write the checkpoint that is due, unless gradients are being accumulated.

        Args:
            runner: the runner, which has done ``epoch`` whole epochs and ``iteration`` iterations.
        """
        if self.due is None or not runner.optim_wrapper.should_update():
            return
        step, self.due = self.due, None
        runner.logger.info(f'Saving checkpoint at {step} {"epochs" if self.by_epoch else "iterations"}')
        if self.max_keep_ckpts > 0:
            kept = runner.message_hub.runtime_info.get('keep_ckpt_ids', [])
            # The new checkpoint still lists the outdated ones, which a resumed run deletes if this one is killed now.
            runner.message_hub.update_info('keep_ckpt_ids', [one for one in kept if one != step] + [step])
        self._save(runner, self.filename_tmpl.format(step), epoch, iteration)
        self._delete_outdated(runner)
        self._delete(self.PREEMPTED)

    def _delete_outdated(self, runner: Runner) -> None:
        steps = runner.message_hub.runtime_info.get('keep_ckpt_ids', [])
        if 0 < self.max_keep_ckpts < len(steps):
            for step in steps[:-self.max_keep_ckpts]:
                self._delete(self.filename_tmpl.format(step))
            runner.message_hub.update_info('keep_ckpt_ids', steps[-self.max_keep_ckpts:])

    def _delete(self, filename: str) -> bool:
        """Delete a file of this run, and return whether there was one."""
        path = self._path(filename)
        exists = is_main_process() and self.file_backend.isfile(path)
        if exists:
            self.file_backend.remove(path)
        return exists

    def _path(self, filename: str) -> str:
        return join_path(self.out_dir, filename, backend_args=self.backend_args)

    def _save(self, runner: Runner, filename: str, epoch: int, iteration: int) -> None:
        """Write a checkpoint of the whole run; from then on ``last_checkpoint`` names it."""
        share_buffers(runner)
        self.saved, path = iteration, self._path(filename)
        if filename != self.PREEMPTED:
            self.last_ckpt = path
            runner.message_hub.update_info('last_ckpt', path)
        if self.save_optimizer and not is_main_process():
            # The Runner saves in the main process alone, where ZeroRedundancyOptimizer waits for all others.
            runner.optim_wrapper.state_dict()
        runner.save_checkpoint(
            self.out_dir, filename, save_optimizer=self.save_optimizer, save_param_scheduler=self.save_param_scheduler,
            meta=dict(epoch=epoch, iter=iteration), backend_args=self.backend_args, **self.args)
        if is_main_process():
            write_atomically(Path(runner.work_dir, 'last_checkpoint'), path)

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['meta'].update(data_shape(runner), next_sizes=next_sizes(runner))

    # -- evaluating ----------------------------------------------------------------------------------

    def before_val(self, runner: Runner) -> None:
        first, self.evaluated = not self.evaluated, True
        if first and self.stop_signals.watching and self.saved != runner.iter and runner.optim_wrapper.should_update():
            self._save(runner, self.PREEMPTED, runner.epoch, runner.iter)

    def before_val_epoch(self, runner: Runner) -> None:
        share_buffers(runner)
        self._stop_evaluation(runner, batch_idx=-1)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        self._stop_evaluation(runner, batch_idx)

    def _stop_evaluation(self, runner: Runner, batch_idx: int) -> None:
        if not self.stop_signals.watching or not runner.optim_wrapper.should_update():
            return
        stopping = self.stop_signals.after_val_iter(runner, batch_idx)
        if stopping:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # puts the weights that are trained back into the model
            self._stop(runner, stopping, runner.iter)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        note_evaluation(runner)
        if self.save_best and metrics and self._save_best(runner, metrics) and self.last_ckpt is not None:
            # The last checkpoint is written again, because the score and the file of the best belong into it.
            self.due = runner.epoch if self.by_epoch else runner.iter
            self._save_due(runner, runner.epoch, runner.iter)
        record_evaluation(runner)

    def _save_best(self, runner: Runner, metrics: dict[str, float]) -> bool:
        """Write a checkpoint for each metric of ``save_best`` that is the best so far; return whether any is."""
        if self.key_indicators == ['auto']:
            chosen = CheckpointHook(save_best=next(iter(metrics)), rule=self.rules[0], greater_keys=self.greater_keys,
                                    less_keys=self.less_keys)
            self.key_indicators, self.rules = chosen.key_indicators, chosen.rules
            self.is_better_than = chosen.is_better_than
        missing = [name for name in self.key_indicators if name not in metrics]
        if missing:
            raise UserError(f'save_best={missing[0]!r} is none of the metrics that were evaluated: {list(metrics)}.')
        step, hub, improved = runner.epoch if self.by_epoch else runner.iter, runner.message_hub, False
        for name, rule in zip(self.key_indicators, self.rules):
            several = len(self.key_indicators) > 1
            score_key, file_key = (f'{key}_{name}' if several else key for key in ('best_score', 'best_ckpt'))
            score, best = metrics[name], hub.runtime_info.get(score_key, self.init_value_map[rule])
            if score is None or not self.is_better_than[name](score, best):
                continue
            improved = True
            filename = f'best_{name}_{self.filename_tmpl.format(step)}'.replace('/', '_')
            previous, path = hub.runtime_info.get(file_key), self._path(filename)
            hub.update_info(score_key, score)
            hub.update_info(file_key, path)
            if several:  # for published_keys of MMEngine's hook
                self.best_ckpt_path_dict[name] = path
            else:
                self.best_ckpt_path = path
            runner.save_checkpoint(
                self.out_dir, filename, save_optimizer=False, save_param_scheduler=False,
                meta=dict(epoch=runner.epoch, iter=runner.iter), backend_args=self.backend_args)
            runner.logger.info(f'The best checkpoint, {name} {score:0.4f} at {step} '
                               f'{"epochs" if self.by_epoch else "iterations"}, is saved to {filename}.')
            # A copy of a run's folder still names the original's file, which stays.
            outdated = Path(previous).name if previous else filename
            if outdated != filename and self._delete(outdated):
                runner.logger.info(f'The previous best checkpoint {self._path(outdated)} is deleted.')
        return improved

    # -- stopping ------------------------------------------------------------------------------------

    def _stop(self, runner: Runner, received: int, iteration: int) -> None:
        """Save the run, which has done ``iteration`` iterations, and end it."""
        self._save(runner, self.PREEMPTED, runner.epoch, iteration)
        barrier()
        runner.logger.warning(f'{signal.Signals(received).name}: the run was saved after iteration {iteration} '
                              'and ends; continue it with --resume.')
        # Hosts of an elastic run that got no signal go on without the one that did: torchrun restarts what fails.
        goes_on = os.environ.get('PET_RDZV_BACKEND') == 'c10d' and not self.stop_signals.received
        sys.exit('Another host was told to stop.' if goes_on else 0)

    def after_train(self, runner: Runner) -> None:
        self.stop_signals.unwatch()
        super().after_train(runner)


def share_buffers(runner: Runner) -> None:
    """Copy the buffers of the model and of its averages (EMA) from the first process to all others.

    Each process gathers BatchNorm's statistics on its own. All processes call this before an evaluation and before
    a checkpoint, so that what is evaluated is what is saved, and what a resumed run has.
    """
    if runner.world_size > 1:
        averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        for model in (runner.model, *averages):
            for buffer in model.buffers():
                broadcast(buffer)
