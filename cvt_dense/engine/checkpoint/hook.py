"""Write checkpoints atomically, and let runs stop and continue at any moment."""
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mmengine.dist import barrier, broadcast, is_main_process
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.runner import Runner

from ...atomic import PREFIX, write_atomically
from ...errors import UserError
from ...registry import HOOKS
from .evaluation import found_nothing, misses_evaluation, note_evaluation
from .files import AtomicLocalBackend
from .resume import adapt_schedules, base_lr, data_shape, move_to_same_data, schedule_ends, skip_seen_batches
from .stop import StopSignals


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """MMEngine's ``CheckpointHook`` for runs that get killed, stopped, and continued elsewhere.

    - Checkpoints and ``last_checkpoint`` are written atomically; an old or less good checkpoint is deleted after that,
      not before.
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
    - A resumed run repeats an evaluation that was due with its checkpoint, unless the checkpoint has the result.
    - Before the first evaluation the run is saved, because mistakes in the data may end an evaluation.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.
    - A run may be continued with other numbers of processes or images: the epoch continues at the same
      fraction of the data, schedules are moved to the same epoch, and the log reports it. The learning
      rate is scaled to the new total batch where ``auto_scale_lr`` is enabled.
    - A run may be continued with schedules of another length, such as those of a longer training. They continue as if
      the run had begun with them, and the log reports it.

    Args: as for MMEngine's ``CheckpointHook``, without its file backends and ``published_keys``: checkpoints are local
        files, which ``tools/publish.py`` publishes.

    Raises:
        ValueError: an argument is none of those.
    """

    PREEMPTED = 'preempted.pth'
    _default_less_keys = ['loss', 'accuracy/loss']  # MMEngine would take the latter for an accuracy

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.file_client_args or self.backend_args or self.published_keys:
            raise ValueError('SafeCheckpointHook: file_client_args, backend_args and published_keys are not allowed; '
                             'use out_dir for another folder, and tools/publish.py.')
        self.backend_args = dict(backend='cvt_dense.atomic')
        self.stop_signals = StopSignals()
        self.saved_meta: dict[str, Any] = {}
        self.configured_lr = 0.  # the config's, in whose place the checkpoint's is loaded
        self.configured_ends: list[int] = []  # of the config's schedules, likewise
        self.due: int | None = None  # epoch or iteration of a checkpoint that waits for the optimizer's step
        self.saved = False  # whether this process has saved a checkpoint
        self.stopping = 0  # the signal after which the run ends with the optimizer's next step

    # -- resuming ------------------------------------------------------------------------------------

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = dict(checkpoint.get('meta', {}))
        if not isinstance(runner.optim_wrapper, dict | None):  # built: the run will train
            move_to_same_data(runner, checkpoint.get('meta', {}))
            self.configured_lr, self.configured_ends = base_lr(runner), schedule_ends(runner)

    def before_train(self, runner: Runner) -> None:
        folder = Path(runner.work_dir)
        self.out_dir = str(folder if self.out_dir is None else Path(self.out_dir, folder.name))
        self.file_backend = AtomicLocalBackend()
        if is_main_process():
            for path in Path(self.out_dir).glob(f'{PREFIX}*'):
                path.unlink()
        runner.logger.info(f'Checkpoints will be saved to {self.out_dir}.')
        if runner.iter > 0:
            skip_seen_batches(runner)
            adapt_schedules(runner, self.saved_meta, self.configured_ends)
            if self.configured_lr and abs(base_lr(runner) / self.configured_lr - 1) > 1e-6:
                runner.logger.warning(f'The learning rate is {base_lr(runner):g}, as in the checkpoint; the config has '
                                      f'{self.configured_lr:g}, which needs a new run, with load_from=CHECKPOINT.')
            self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
        self.stop_signals.watch(runner)
        if misses_evaluation(runner):
            runner.logger.info('The checkpoint lacks the result of the evaluation that was due with it. This '
                               'evaluation runs now.')
            runner.val_loop.run()
            if runner.iter == runner.max_iters:  # no later checkpoint takes the place of preempted.pth
                self._save_checkpoint_with_step(runner, runner.epoch if self.by_epoch else runner.iter,
                                                dict(epoch=runner.epoch, iter=runner.iter))

    # -- saving --------------------------------------------------------------------------------------

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        iteration = runner.iter + 1
        super().after_train_iter(runner, batch_idx, data_batch, outputs)
        self._save_due(runner, runner.epoch, iteration)
        self.stopping = self.stopping or self.stop_signals.after_train_iter(runner)
        if self.stopping and runner.optim_wrapper.should_update():
            self._stop(runner, self.stopping, iteration)

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict[str, Any]) -> None:
        """Save a checkpoint, as MMEngine's hook decides, once no gradients are being accumulated."""
        self.due = step
        self._save_due(runner, meta['epoch'], meta['iter'])

    def _save_due(self, runner: Runner, epoch: int, iteration: int) -> None:
        """Write the checkpoint that is due, unless gradients are being accumulated.

        Args:
            runner: the runner, which has done ``epoch`` whole epochs and ``iteration`` iterations.
        """
        if self.due is None or not runner.optim_wrapper.should_update():
            return
        step, self.due = self.due, None
        kept = [one for one in runner.message_hub.runtime_info.get('keep_ckpt_ids', []) if one != step] + [step]
        # The new checkpoint still lists the outdated ones, which a resumed run deletes if this one is killed now.
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        filename = self.filename_tmpl.format(step)
        self.last_ckpt = os.path.join(self.out_dir, filename)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        self._save(runner, filename, epoch, iteration)
        self._delete(self.PREEMPTED)
        if self.max_keep_ckpts > 0:
            for step in kept[:-self.max_keep_ckpts]:
                self._delete(self.filename_tmpl.format(step))
            runner.message_hub.update_info('keep_ckpt_ids', kept[-self.max_keep_ckpts:])

    def _delete(self, filename: str) -> None:
        if is_main_process():
            Path(self.out_dir, filename).unlink(missing_ok=True)

    def _save(self, runner: Runner, filename: str, epoch: int, iteration: int) -> None:
        """Write a checkpoint of the whole run; from then on ``last_checkpoint`` names it."""
        share_buffers(runner)
        self.saved = True
        if self.save_optimizer and not is_main_process():
            # The Runner saves in the main process alone, where ZeroRedundancyOptimizer waits for all others.
            runner.optim_wrapper.state_dict()
        meta = dict(data_shape(runner), epoch=epoch, iter=iteration)
        runner.save_checkpoint(
            self.out_dir, filename, save_optimizer=self.save_optimizer, save_param_scheduler=self.save_param_scheduler,
            meta=meta, backend_args=self.backend_args, **self.args)
        if is_main_process():
            write_atomically(Path(runner.work_dir, 'last_checkpoint'), os.path.join(self.out_dir, filename))

    # -- evaluating ----------------------------------------------------------------------------------

    def before_val(self, runner: Runner) -> None:
        if self.stop_signals.watching and not self.saved and runner.optim_wrapper.should_update():
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
        if found_nothing(metrics):
            runner.logger.warning('The evaluation has no result, because the model finds no object yet. It counts '
                                  'neither for the best checkpoint nor for an early end.')
            return
        missing = set(self.key_indicators) - {*metrics, 'auto'} if self.save_best else set()
        if missing:
            raise UserError(f'save_best={sorted(missing)}: allowed are the metrics that were evaluated, '
                            f'{list(metrics)}.')
        info = runner.message_hub.runtime_info
        previous = {key: path for key, path in info.items() if key.startswith('best_ckpt')}
        # MMEngine's hook deletes what these attributes name before it writes the new file.
        self.best_ckpt_path, self.best_ckpt_path_dict = None, dict.fromkeys(metrics)
        super().after_val_epoch(runner, metrics)
        for key, path in previous.items():
            if info[key] != path:
                self._delete(os.path.basename(path))  # a copy of a run's folder still names the original's file

    # -- stopping ------------------------------------------------------------------------------------

    def _stop(self, runner: Runner, received: int, iteration: int) -> None:
        """Save the run, which has done ``iteration`` iterations, and end it.

        tools/_launch.sh and cli/trainings.py take a run whose ``last_checkpoint`` names this file for incomplete.
        """
        self._save(runner, self.PREEMPTED, runner.epoch, iteration)
        barrier()
        runner.logger.warning(f'{signal.Signals(received).name}: the run was saved after iteration {iteration} '
                              'and ends; continue it with --resume.')
        # Hosts of an elastic run that got no signal go on without the one that did: torchrun restarts what fails.
        goes_on = os.environ.get('PET_RDZV_BACKEND') == 'c10d' and not self.stop_signals.received
        sys.exit('Another host was told to stop.' if goes_on else 0)

    def after_train(self, runner: Runner) -> None:
        self.stop_signals.unwatch()


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
