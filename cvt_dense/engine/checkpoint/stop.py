"""Handle stop signals in all processes of a training at the same iteration."""
import atexit
import multiprocessing
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.runner import Runner

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopSignals:
    """Records SIGTERM and SIGUSR1 while a run trains and evaluates.

    Several processes compare what they received before an evaluation, and after every ``PERIOD`` iterations of the
    training or batches of the evaluation that all of them have.
    """

    PERIOD = 10

    def __init__(self):
        self.received = 0
        self._old_handlers: dict[int, Any] = {}

    @property
    def watching(self) -> bool:
        """Return whether signals are being recorded."""
        return bool(self._old_handlers)

    def watch(self, runner: Runner) -> None:
        """Record signals from now on instead of ending the process, and keep them from ending a loader's workers."""
        exiting = multiprocessing.Event()
        atexit.register(exiting.set)
        for loop in filter(None, (runner.train_loop, runner.val_loop)):
            loop.dataloader.worker_init_fn = partial(_init_worker, loop.dataloader.worker_init_fn, exiting)
        self._old_handlers = {number: signal.signal(number, self._receive) for number in SIGNALS}

    def unwatch(self) -> None:
        """Restore the previous signal handlers."""
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        self._old_handlers = {}

    def _receive(self, number: int, frame: Any) -> None:
        self.received = number

    def after_train_iter(self, runner: Runner) -> int:
        """Return the signal that one of the processes got, the same in all; 0 if none."""
        done = runner.iter + 1
        if done == runner.max_iters:
            return 0
        if runner.world_size == 1:
            return self.received
        return _reduce(self.received, 'max') if done % self.PERIOD == 0 else 0

    def after_val_iter(self, runner: Runner, batch_idx: int) -> int:
        """Return the same after an evaluation's batch ``batch_idx``, or with -1 before the first one."""
        if runner.world_size == 1:
            return self.received
        done = batch_idx + 1
        if done == 0:  # a process may have one batch fewer than another
            self._batches = _reduce(len(runner.val_dataloader), 'min')
        return _reduce(self.received, 'max') if done % self.PERIOD == 0 and done <= self._batches else 0


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

    for number in SIGNALS:
        signal.signal(number, on_sigterm if number == signal.SIGTERM else signal.SIG_IGN)
    if init is not None:
        init(worker_id)
