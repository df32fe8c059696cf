"""Stop a training by a signal, in all processes at the same iteration."""
import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from mmengine.dist import all_reduce, barrier
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import Runner

from ...registry import HOOKS
from .files import PREEMPTED
from .save import save_run

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Stopped(Exception):
    """A training has been saved after a signal, and ends.

    Attributes:
        code: exit code of the process.
    """

    def __init__(self, code: int):
        super().__init__(code)
        self.code = code


@HOOKS.register_module()
class StopHook(Hook):
    """Save a training that gets SIGTERM, SIGUSR1, as Slurm sends before a time limit, or SIGINT (Ctrl-C), and end it.

    The run is saved as ``preempted.pth``, and :class:`Stopped` is raised, with which a tool ends with exit code 0. A
    second Ctrl-C interrupts at once. A training in a thread cannot be stopped by a signal, as Python handles signals in
    the main thread alone.

    It stops after the next step of the optimizer. Several processes compare what they received before an evaluation,
    and after every ``PERIOD`` iterations of the training or batches of the evaluation that all of them have, so they
    stop together, whichever of them got the signal. An evaluation is interrupted, and repeated by the resumed run; only
    metrics that are being computed are completed. With ``RDZV`` of tools/dist_train.sh, processes that did not get the
    signal end with 1, and torchrun restarts them.
    """

    priority = 'VERY_LOW'
    PERIOD = 10

    def __init__(self):
        self.received = 0  # the last signal that this process got
        self.stopping = 0  # the signal after which the run ends with the optimizer's next step
        self.old_handlers: dict[int, Any] = {}  # while the run trains
        self.common_batches = 0  # number of an evaluation's batches that every process has
        self.exiting: list[Any] = []  # an event for the workers of each data loader

    def before_train(self, runner: Runner) -> None:
        """Record signals from now on instead of ending the process, and keep them from ending a loader's workers."""
        if threading.current_thread() is not threading.main_thread():
            runner.logger.warning('This training runs in a thread, where it cannot be stopped by a signal.')
            return
        for loader in (loop.dataloader for loop in (runner.train_loop, runner.val_loop) if loop):
            exiting = (loader.multiprocessing_context or multiprocessing).Event()
            atexit.register(exiting.set)
            loader.worker_init_fn = partial(_init_worker, loader.worker_init_fn, exiting)
            self.exiting.append(exiting)
        self.old_handlers = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def after_train(self, runner: Runner) -> None:
        for exiting in self.exiting:
            exiting.set()
        for number, handler in self.old_handlers.items():
            signal.signal(number, handler)
        self.old_handlers = {}

    def _receive(self, number: int, frame: Any) -> None:
        if number == signal.SIGINT and self.received == number:
            raise KeyboardInterrupt
        self.received = number

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        iteration = runner.iter + 1
        self.stopping = self.stopping or self._compare(runner, iteration, runner.max_iters - 1)
        if self.stopping and iteration < runner.max_iters and runner.optim_wrapper.should_update():
            self._stop(runner, iteration)

    def before_val_epoch(self, runner: Runner) -> None:
        if self.old_handlers:
            self.common_batches = _reduce(len(runner.val_dataloader), 'min')
            self.after_val_iter(runner, -1)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if not self.old_handlers or not runner.optim_wrapper.should_update():
            return
        self.stopping = self._compare(runner, batch_idx + 1, self.common_batches)
        if self.stopping:
            for hook in runner.hooks:
                if isinstance(hook, EMAHook):
                    hook.after_val_epoch(runner)  # puts the weights that are trained back into the model
            self._stop(runner, runner.iter)

    def _compare(self, runner: Runner, done: int, last: int) -> int:
        """Return the signal that one of the processes got, the same in all; 0 if none.

        Args:
            done: iterations or batches until now.
            last: those after which the processes compare no longer.
        """
        if runner.world_size == 1:
            return self.received if done <= last else 0
        return _reduce(self.received, 'max') if done % self.PERIOD == 0 and done <= last else 0

    def _stop(self, runner: Runner, iteration: int) -> None:
        """Save the run, which has done ``iteration`` iterations, and end it."""
        save_run(runner, PREEMPTED, runner.epoch, iteration)
        barrier()
        runner.logger.warning(f'{signal.Signals(self.stopping).name}: the run was saved after iteration {iteration} '
                              'and ends; continue it with --resume.')
        # Hosts of an elastic run that got no signal go on without the one that did: torchrun restarts what fails.
        raise Stopped(int(os.environ.get('PET_RDZV_BACKEND') == 'c10d' and not self.received))


def _reduce(value: int, how: str) -> int:
    """Return the 'min' or the 'max' of all processes' values."""
    values = torch.tensor(value)
    all_reduce(values, how)
    return values.item()


def _init_worker(init: Callable[[int], None] | None, exiting: Any, worker_id: int) -> None:
    """Start a data loader's worker that survives stop signals.

    SIGTERM to all processes of a job must not take the data away from the process that is about to save.
    Once that one is ``exiting`` (an event), SIGTERM is its way to end the worker.
    """

    def on_sigterm(number: int, frame: Any) -> None:
        if exiting.is_set():
            os._exit(0)

    signal.signal(signal.SIGTERM, on_sigterm)
    for number in (signal.SIGUSR1, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if init is not None:
        init(worker_id)
