"""Checkpoints that a crash cannot tear, and runs that can be stopped and continued at any moment."""
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import barrier, is_main_process
from mmengine.fileio import join_path
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.runner import Runner

from ...registry import HOOKS
from ..atomic_files import PARTIAL, AtomicLocalBackend
from .batch_sizes import next_sizes, restore_sizes
from .gradients import accumulated_gradients, restore_gradients
from .missed_evaluation import misses_evaluation, note_evaluation, record_evaluation
from .resume import data_shape, resume, skip_seen_batches
from .share_buffers import share_buffers
from .stop import StopSignals


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """MMEngine's ``CheckpointHook`` for runs that get killed, stopped, and continued elsewhere.

    - Local checkpoints and ``last_checkpoint`` are written under another name and renamed when they
      are complete; an old or less good one is deleted after that, not before.
    - SIGTERM and SIGUSR1 (Slurm's ``--signal=USR1@120``) save ``preempted.pth`` after the next iteration, with
      several processes within about 5 seconds whichever of them was told, and end the run with exit code 0. An
      evaluation is broken off, and made up for by the resumed run; only metrics that are being computed come to
      their end. Resumed, it goes on with the next batch of the same epoch. Batches seen before are neither repeated
      nor left out, since the samplers depend on seed and epoch alone; only samplers that ignore the seed would
      (:class:`SeedHook` names them). The log numbers the rest of that epoch's batches from 1.
    - The size that ``BatchSyncRandomResize`` has drawn for the next batch is saved too.
    - Gradients that are still being accumulated are saved too, each process's own: neither an epoch's end nor a
      signal between two steps of the optimizer loses or changes any. Such a checkpoint is larger by one copy of the
      weights for each process.
    - An evaluation that was due with the last checkpoint, but whose result that does not hold, is made up for.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.
    - A run may be continued with other numbers of processes or images: the epoch goes on at the same
      share of the data, schedules are moved to the same epoch, and the log says so. The learning
      rate is scaled to the new total batch where ``auto_scale_lr`` is enabled.

    Args: those of MMEngine's ``CheckpointHook``.
    """

    PREEMPTED = 'preempted.pth'

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.stop_signals = StopSignals()
        self.saved_meta: dict[str, Any] = {}
        self.gradients: list[dict[str, torch.Tensor]] = []  # of the checkpoint that is being saved or was loaded

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = checkpoint.get('meta', {})
        self.gradients = checkpoint.pop('accumulated_gradients', [])

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['meta'].update(data_shape(runner), next_sizes=next_sizes(runner))
        if self.gradients:
            checkpoint['accumulated_gradients'] = self.gradients

    def before_train(self, runner: Runner) -> None:
        folder = str(self.out_dir or runner.work_dir)
        if self.backend_args is None and self.file_client_args is None and '://' not in folder:
            self.backend_args = dict(backend='cvt_dense.atomic')
        super().before_train(runner)
        if is_main_process() and '://' not in folder:
            for path in Path(self.out_dir).glob(f'*{PARTIAL}'):
                path.unlink()
        if runner.iter > 0:
            resume(runner, self.saved_meta)
            restore_gradients(runner, self.gradients, self.saved_meta)
            restore_sizes(runner, self.saved_meta.get('next_sizes', []))
        self.gradients = []
        self.stop_signals.watch(runner)
        if misses_evaluation(runner):
            runner.logger.info('The checkpoint does not hold the result of the evaluation due with it; it comes now.')
            runner.val_loop.run()

    def before_train_epoch(self, runner: Runner) -> None:
        skip_seen_batches(runner)

    def before_val_epoch(self, runner: Runner) -> None:
        share_buffers(runner)
        self._stop_evaluation(runner, batch_idx=-1)

    def after_val_iter(self,
                       runner: Runner,
                       batch_idx: int,
                       data_batch: Any = None,
                       outputs: Any = None) -> None:
        self._stop_evaluation(runner, batch_idx)

    def _stop_evaluation(self, runner: Runner, batch_idx: int) -> None:
        told = self.stop_signals.told_in_evaluation(runner, batch_idx)
        if told:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # puts the weights that are trained back into the model
            self._stop(runner, told, runner.iter)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        note_evaluation(runner)
        super().after_val_epoch(runner, metrics)
        record_evaluation(runner)

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        super().after_train_iter(runner, batch_idx, data_batch, outputs)
        told = self.stop_signals.told(runner)
        if told:
            self._stop(runner, told, runner.iter + 1)

    def _stop(self, runner: Runner, told: int, iteration: int) -> None:
        """Saves the run, which has done ``iteration`` iterations, and ends it."""
        self._save(runner, self.PREEMPTED, dict(epoch=runner.epoch, iter=iteration))
        barrier()
        runner.logger.warning(f'{signal.Signals(told).name}: the run was saved after iteration {iteration} '
                              'and ends; continue it with --resume.')
        sys.exit(0)

    def after_train(self, runner: Runner) -> None:
        self.stop_signals.unwatch()
        super().after_train(runner)

    def _save(self, runner: Runner, filename: str, meta: dict[str, Any]) -> None:
        """Writes a checkpoint; from then on ``last_checkpoint`` names it."""
        share_buffers(runner)
        self.gradients = accumulated_gradients(runner)
        self.last_ckpt = join_path(self.out_dir, filename, backend_args=self.backend_args)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        if self.save_optimizer and not is_main_process():
            # The Runner saves in the main process alone, where ZeroRedundancyOptimizer waits for all others.
            runner.optim_wrapper.state_dict()
        runner.save_checkpoint(
            self.out_dir,
            filename,
            self.file_client_args,
            save_optimizer=self.save_optimizer,
            save_param_scheduler=self.save_param_scheduler,
            meta=meta,
            by_epoch=self.by_epoch,
            backend_args=self.backend_args,
            **self.args)
        self.gradients = []
        if is_main_process():
            AtomicLocalBackend().put(self.last_ckpt.encode(), Path(runner.work_dir, 'last_checkpoint'))

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict[str, Any]) -> None:
        outdated: list[str] = []
        if self.max_keep_ckpts > 0:
            steps = [kept for kept in self.keep_ckpt_ids if kept != step] + [step]
            # The new checkpoint still lists the outdated one: were the run killed before the deletion below,
            # the parent's before_train would make up for it.
            runner.message_hub.update_info('keep_ckpt_ids', steps)
            outdated = [self.filename_tmpl.format(kept) for kept in steps[:-self.max_keep_ckpts]]
            self.keep_ckpt_ids = deque(steps, self.max_keep_ckpts)
        self._save(runner, self.filename_tmpl.format(step), meta)
        if is_main_process():
            for filename in [*outdated, self.PREEMPTED]:
                path = join_path(self.out_dir, filename, backend_args=self.backend_args)
                if self.file_backend.isfile(path):
                    self.file_backend.remove(path)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict[str, float]) -> None:
        # The parent deletes the previous best checkpoint before it writes the new one.
        outdated: list[str] = []
        self.gradients = accumulated_gradients(runner)
        remove, self.file_backend.remove = self.file_backend.remove, outdated.append
        try:
            super()._save_best_checkpoint(runner, metrics)
        finally:
            self.file_backend.remove = remove
            self.gradients = []
        for path in outdated:
            # A copy of a run's folder still names the original's files, which stay.
            own = join_path(self.out_dir, Path(path).name, backend_args=self.backend_args)
            if self.file_backend.isfile(own):
                remove(own)
