"""Checkpoints that a crash cannot tear, and runs that can be stopped and continued at any moment."""
import atexit
import copy
import itertools
import multiprocessing
import os
import signal
import sys
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import all_reduce, barrier, broadcast, is_main_process
from mmengine.fileio import LocalBackend, join_path, register_backend
from mmengine.hooks import CheckpointHook, EMAHook
from mmengine.runner import EpochBasedTrainLoop, Runner

from ...registry import HOOKS

PARTIAL = '.partial'  # ending of a file that is being written


@register_backend('cvt_dense.atomic', force=True)
class AtomicLocalBackend(LocalBackend):
    """MMEngine's local files; ``put`` leaves either the complete new file or what was there before."""

    def put(self, obj: bytes, filepath: str | Path) -> None:
        partial = Path(f'{filepath}{PARTIAL}')
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(partial, 'wb') as file:
                file.write(obj)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, filepath)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise OSError(
                error.errno,
                f'{error.strerror}: {filepath} ({len(obj) / 2**20:.0f} MiB) could not be written. '
                'Checkpoints written before are complete; make room and continue with --resume') from error


def find_checkpoint(work_dir: str) -> str | None:
    """The checkpoint that a run in ``work_dir`` continues from; None if there is none.

    It is the one that ``last_checkpoint`` names. Where that is missing or torn (an older run without
    :class:`SafeCheckpointHook`, a moved folder, a damaged disk), it is the newest complete one.
    """
    folder = Path(work_dir)
    candidates: list[Path] = []
    if (folder / 'last_checkpoint').is_file():
        named = (folder / 'last_checkpoint').read_text().strip()
        if '://' in named:
            return named
        candidates = [Path(named), folder / Path(named).name]
    saved = [path for pattern in ('epoch_*.pth', 'iter_*.pth') for path in folder.glob(pattern)]
    candidates += sorted(saved, key=lambda path: path.stat().st_mtime, reverse=True)
    # The directory of a zip archive, which torch.save writes, is at its end: it is the first to be torn off.
    return next((str(path) for path in candidates if path.is_file() and zipfile.is_zipfile(path)), None)


class _SkipOnce:
    """A batch sampler whose next pass leaves out its first ``num_batches``; their data is not loaded."""

    def __init__(self, batch_sampler: Any, num_batches: int):
        self.batch_sampler = batch_sampler
        self.num_batches = num_batches

    def __iter__(self) -> Iterator[list[Any]]:
        # A generator, because DataLoader makes an iterator that it drops before the one that it uses.
        start, self.num_batches = self.num_batches, 0
        yield from itertools.islice(iter(self.batch_sampler), start, None)

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.batch_sampler, name)


def _init_worker(init: Callable[[int], None] | None, exiting: Any, worker_id: int) -> None:
    """Start of a data loader's worker.

    SIGTERM to all processes of a job must not take the data away from the process that is about to save.
    Once that one is ``exiting`` (an event), SIGTERM is its way to end the worker.
    """

    def on_sigterm(number: int, frame: Any) -> None:
        if exiting.is_set():
            os._exit(0)

    signal.signal(signal.SIGTERM, on_sigterm)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if init is not None:
        init(worker_id)


@HOOKS.register_module()
class SafeCheckpointHook(CheckpointHook):
    """MMEngine's ``CheckpointHook`` for runs that get killed, stopped, and continued elsewhere.

    - Local checkpoints and ``last_checkpoint`` are written under another name and renamed when they
      are complete; an old or less good one is deleted after that, not before.
    - SIGTERM and SIGUSR1 (Slurm's ``--signal=USR1@120``) save ``preempted.pth`` at the end of an
      iteration, at most ``SIGNAL_INTERVAL`` iterations later with several processes, and end the run
      with exit code 0. Resumed, it goes on with the next batch of the same epoch. Batches seen before
      are neither repeated nor left out, since the samplers depend on seed and epoch alone; only
      samplers that ignore the seed would. The log numbers the rest of that epoch's batches from 1.
    - An evaluation that was due with the last checkpoint, but did not come to its end, is made up for.
    - BatchNorm's statistics, which each process gathers on its own, become the first process's before a
      checkpoint and before an evaluation: what is evaluated is what is saved, and what a resumed run has.
    - A run may be continued with other numbers of processes or images: the epoch goes on at the same
      share of the data, schedules are moved to the same epoch, and the log says so. The learning
      rate is scaled to the new total batch where ``auto_scale_lr`` is enabled.

    Args: those of MMEngine's ``CheckpointHook``.
    """

    SIGNAL_INTERVAL = 10  # iterations between two agreements of the processes on whether one was told to stop
    PREEMPTED = 'preempted.pth'
    EVALUATED = 'last_evaluation'  # file with the epoch or iteration whose evaluation was the last to end

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.signal = 0
        self.saved_meta: dict[str, Any] = {}

    # -- starting and continuing -------------------------------------------------------------------

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved_meta = checkpoint.get('meta', {})

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        checkpoint['meta'].update(self._shape(runner))

    @staticmethod
    def _shape(runner: Runner) -> dict[str, int]:
        """What decides which images belong to an iteration, as a checkpoint's ``meta`` records it."""
        loader = runner.train_dataloader
        return dict(
            world_size=runner.world_size,
            batch_size=loader.batch_size or getattr(loader.batch_sampler, 'batch_size', 1),
            accumulative_counts=runner.cfg.optim_wrapper.get('accumulative_counts', 1),
            batches_per_epoch=len(loader))

    def before_train(self, runner: Runner) -> None:
        folder = str(self.out_dir or runner.work_dir)
        if self.backend_args is None and self.file_client_args is None and '://' not in folder:
            self.backend_args = dict(backend='cvt_dense.atomic')
        super().before_train(runner)
        if is_main_process() and '://' not in folder:
            for path in Path(self.out_dir).glob(f'*{PARTIAL}'):
                path.unlink()
        if runner.iter > 0:
            self._continue(runner)
        loader = runner.train_dataloader
        exiting = multiprocessing.Event()
        atexit.register(exiting.set)
        loader.worker_init_fn = partial(_init_worker, loader.worker_init_fn, exiting)
        self._old_handlers = {number: signal.signal(number, self._on_signal)
                              for number in (signal.SIGTERM, signal.SIGUSR1)}
        if runner.iter > 0 and runner.val_loop is not None and self._misses_evaluation(runner):
            runner.logger.info('The evaluation due with the checkpoint did not come to an end; it comes now.')
            runner.val_loop.run()

    def _misses_evaluation(self, runner: Runner) -> bool:
        loop = runner.train_loop
        step, end = runner.iter, runner.max_iters
        if isinstance(loop, EpochBasedTrainLoop):
            if step != runner.epoch * len(loop.dataloader):
                return False  # inside an epoch
            step, end = runner.epoch, runner.max_epochs
        due = step >= loop.val_begin and (step % loop.val_interval == 0 or step == end)
        evaluated = Path(runner.work_dir, self.EVALUATED)
        return due and not (evaluated.is_file() and evaluated.read_text() == str(step))

    @staticmethod
    def _share_buffers(runner: Runner) -> None:
        if runner.world_size > 1:
            averages = [hook.ema_model for hook in runner.hooks if isinstance(hook, EMAHook)]
            for model in (runner.model, *averages):
                for buffer in model.buffers():
                    broadcast(buffer)

    def before_val_epoch(self, runner: Runner) -> None:
        self._share_buffers(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float]) -> None:
        super().after_val_epoch(runner, metrics)
        if is_main_process():
            step = runner.epoch if isinstance(runner.train_loop, EpochBasedTrainLoop) else runner.iter
            AtomicLocalBackend().put(str(step).encode(), Path(runner.work_dir, self.EVALUATED))

    def _continue(self, runner: Runner) -> None:
        sampler = runner.train_dataloader.sampler
        if getattr(sampler, 'seed', runner.seed) != runner.seed:
            sampler.seed = runner.seed  # without a seed in the config, the sampler has drawn a new one
        old, new = self.saved_meta, self._shape(runner)
        if 'world_size' not in old or all(old[key] == value for key, value in new.items()):
            return
        totals = [shape['world_size'] * shape['batch_size'] for shape in (old, new)]
        loop, iteration = runner.train_loop, runner.iter
        if isinstance(loop, EpochBasedTrainLoop):
            images = (iteration - runner.epoch * old['batches_per_epoch']) * totals[0]
            loop._iter = runner.epoch * new['batches_per_epoch'] + images // totals[1]
            runner.message_hub.update_info('iter', loop._iter)
            runner.optim_wrapper.initialize_count_status(runner.model, loop.iter, loop.max_iters)
        ratio = 1.
        if (runner.auto_scale_lr or {}).get('enable', False):
            ratio = (totals[1] * new['accumulative_counts']) / (totals[0] * old['accumulative_counts'])
        if ratio != 1 or runner.iter != iteration:
            self._replay_schedules(runner, ratio)
        runner.logger.warning(
            'Continued with {world_size} x {batch_size} images per iteration x {accumulative_counts} '
            'accumulated; the checkpoint was saved with '.format(**new) +
            '{world_size} x {batch_size} x {accumulative_counts}. '.format(**old) +
            f'Iteration {iteration} became {runner.iter} of {runner.max_iters}; learning rates were '
            f'multiplied by {ratio:g}'
            f'{"" if ratio != 1 else " (--auto-scale-lr scales them to the total batch)"}.')

    @staticmethod
    def _replay_schedules(runner: Runner, lr_ratio: float) -> None:
        """Rebuilds the schedules, whose saved state counts the old iterations, and steps them to now."""
        for group in runner.optim_wrapper.param_groups:
            group['initial_lr'] *= lr_ratio
            for key in [key for key in group if key.startswith('initial_')]:
                group[key[len('initial_'):]] = group[key]
        runner.param_schedulers = runner.build_param_scheduler(copy.deepcopy(runner.cfg.param_scheduler))
        batches_per_epoch = len(runner.train_dataloader)
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # no optimizer step comes before these
            for iteration in range(1, runner.iter + 1):
                for scheduler in runner.param_schedulers:
                    if not scheduler.by_epoch or iteration % batches_per_epoch == 0:
                        scheduler.step()

    def before_train_epoch(self, runner: Runner) -> None:
        loader = runner.train_dataloader
        if not isinstance(runner.train_loop, EpochBasedTrainLoop):
            return  # MMEngine's iteration-based loop skips by itself
        done = runner.iter - runner.epoch * len(loader)
        if done > 0 and loader.batch_sampler is None:
            runner.logger.warning(
                f'{done} batches of epoch {runner.epoch + 1} are seen again: the data set is a stream.')
            runner.train_loop._iter -= done
        elif done > 0:
            # DataLoader refuses a plain assignment, because for a running iterator it would come too late.
            object.__setattr__(loader, 'batch_sampler', _SkipOnce(loader.batch_sampler, done))

    # -- being told to stop ------------------------------------------------------------------------

    def _on_signal(self, number: int, frame: Any) -> None:
        self.signal = number

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        super().after_train_iter(runner, batch_idx, data_batch, outputs)
        # Gradients that are still being accumulated are in no checkpoint.
        if not runner.optim_wrapper.should_update() or runner.iter + 1 == runner.max_iters:
            return
        told = torch.tensor(self.signal)
        if runner.world_size > 1:
            if not self.every_n_train_iters(runner, self.SIGNAL_INTERVAL):
                return
            all_reduce(told, 'max')
        if told:
            self._save(runner, self.PREEMPTED, dict(epoch=runner.epoch, iter=runner.iter + 1))
            barrier()
            runner.logger.warning(f'{signal.Signals(int(told)).name}: the run was saved after iteration '
                                  f'{runner.iter + 1} and ends; continue it with --resume.')
            sys.exit(0)

    def after_train(self, runner: Runner) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        super().after_train(runner)

    # -- writing -----------------------------------------------------------------------------------

    def _save(self, runner: Runner, filename: str, meta: dict[str, Any]) -> None:
        """Writes a checkpoint; from then on ``last_checkpoint`` names it."""
        self._share_buffers(runner)
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
        remove, self.file_backend.remove = self.file_backend.remove, outdated.append
        try:
            super()._save_best_checkpoint(runner, metrics)
        finally:
            self.file_backend.remove = remove
        for path in outdated:
            if self.file_backend.isfile(path):
                remove(path)
