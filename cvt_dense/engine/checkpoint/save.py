"""Write checkpoints atomically, and only between the steps of the optimizer."""
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmengine.dist import broadcast, is_main_process
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.runner import Runner

from ...atomic import PREFIX, write_atomically
from ...errors import UserError
from ...registry import HOOKS
from .files import PREEMPTED, AtomicLocalBackend
from .resume import ResumeHook, data_shape, note_evaluation
from .stop import StopHook


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """Save checkpoints that survive a crash, a stop signal and a move to another machine.

    It extends MMEngine's ``CheckpointHook``, and adds a :class:`.stop.StopHook` and a :class:`.resume.ResumeHook`.

    - Checkpoints and ``last_checkpoint`` are written atomically; an old or less good checkpoint is deleted after that,
      not before.
    - While gradients are being accumulated, checkpoints wait for the next step of the optimizer, after which there are
      no gradients to save. If an epoch ends between two steps, ``epoch_N.pth`` is written some iterations into epoch
      N + 1, from where a resumed run continues; the best checkpoint holds exactly what was evaluated.
    - Before the first evaluation the run is saved, because mistakes in the data may end an evaluation.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.

    Args: as for MMEngine's ``CheckpointHook``, without its file backends and ``published_keys``: checkpoints are local
        files, which ``tools/publish.py`` publishes.

    Raises:
        ValueError: an argument is none of those.
    """

    _default_less_keys = ['loss', 'accuracy/loss']  # MMEngine would take the latter for an accuracy

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.file_client_args or self.backend_args or self.published_keys:
            raise ValueError('SafeCheckpointHook: file_client_args, backend_args and published_keys are not allowed; '
                             'use out_dir for another folder, and tools/publish.py.')
        self.backend_args = dict(backend='cvt_dense.atomic')
        self.companions = StopHook(self.save_preempted), ResumeHook(self.save_evaluated)
        self.due: int | None = None  # epoch or iteration of a checkpoint that waits for the optimizer's step
        self.saved = True  # whether there is nothing that a failing evaluation could lose

    def before_run(self, runner: Runner) -> None:
        for hook in self.companions:
            if hook not in runner.hooks:
                runner.register_hook(hook, self.priority)  # behind this hook

    def before_train(self, runner: Runner) -> None:
        folder = Path(runner.work_dir)
        self.out_dir = str(folder if self.out_dir is None else Path(self.out_dir, folder.name))
        self.file_backend = AtomicLocalBackend()
        self.last_ckpt = runner.message_hub.runtime_info.get('last_ckpt')
        self.saved = False
        if is_main_process():
            for path in Path(self.out_dir).glob(f'{PREFIX}*'):
                path.unlink()
        runner.logger.info(f'Checkpoints will be saved to {self.out_dir}.')

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        super().after_train_iter(runner, batch_idx, data_batch, outputs)
        self._save_due(runner, runner.epoch, runner.iter + 1)

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
        kept = [old for old in runner.message_hub.runtime_info.get('keep_ckpt_ids', []) if old != step] + [step]
        # The new checkpoint still lists the outdated ones, which a resumed run deletes if this one is killed now.
        runner.message_hub.update_info('keep_ckpt_ids', kept)
        filename = self.filename_tmpl.format(step)
        self.last_ckpt = os.path.join(self.out_dir, filename)
        runner.message_hub.update_info('last_ckpt', self.last_ckpt)
        self._save(runner, filename, epoch, iteration)
        self._delete(PREEMPTED)
        if self.max_keep_ckpts > 0:
            for step in kept[:-self.max_keep_ckpts]:
                self._delete(self.filename_tmpl.format(step))
            runner.message_hub.update_info('keep_ckpt_ids', kept[-self.max_keep_ckpts:])

    def save_preempted(self, runner: Runner, iteration: int) -> None:
        """Save a run that may end here, after ``iteration`` iterations; the next checkpoint takes the file's place."""
        self._save(runner, PREEMPTED, runner.epoch, iteration)

    def save_evaluated(self, runner: Runner) -> None:
        """Save a run that was resumed at its end, and evaluated there, as its last checkpoint."""
        self._save_checkpoint_with_step(runner, runner.epoch if self.by_epoch else runner.iter,
                                        dict(epoch=runner.epoch, iter=runner.iter))

    def _save(self, runner: Runner, filename: str, epoch: int, iteration: int) -> None:
        """Write a checkpoint of the whole run; from then on ``last_checkpoint`` names it."""
        share_buffers(runner)
        self.saved = True
        if self.save_optimizer and not is_main_process():
            # The Runner saves in the main process alone, where ZeroRedundancyOptimizer waits for all others.
            runner.optim_wrapper.state_dict()
        runner.save_checkpoint(
            self.out_dir, filename, save_optimizer=self.save_optimizer, save_param_scheduler=self.save_param_scheduler,
            meta=dict(data_shape(runner), epoch=epoch, iter=iteration), backend_args=self.backend_args, **self.args)
        if is_main_process():
            write_atomically(Path(runner.work_dir, 'last_checkpoint'), os.path.join(self.out_dir, filename))

    def _delete(self, filename: str) -> None:
        if is_main_process():
            Path(self.out_dir, filename).unlink(missing_ok=True)

    def before_val(self, runner: Runner) -> None:
        if not self.saved and runner.optim_wrapper.should_update():
            self.save_preempted(runner, runner.iter)

    def before_val_epoch(self, runner: Runner) -> None:
        share_buffers(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        note_evaluation(runner)
        if not has_result(metrics):
            runner.logger.warning('The evaluation has no result: the model finds no object yet, or format_only is set. '
                                  'It counts neither for the best checkpoint nor for an early end.')
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


def share_buffers(runner: Runner) -> None:
    """Copy the buffers of the model and of its averages (EMA) from the first process to all others."""
    if runner.world_size > 1:
        averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
        for model in (runner.model, *averages):
            for buffer in model.buffers():
                broadcast(buffer)


def has_result(metrics: Iterable[str]) -> bool:
    """Return whether an evaluation has a result: MMDetection's has none if not a single object is detected.

    Args:
        metrics: names of the metrics; other hooks add the names with ``raw/`` and ``val/``.
    """
    return not all(name.startswith(('raw/', 'val/')) for name in metrics)
