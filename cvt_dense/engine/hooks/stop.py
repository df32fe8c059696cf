"""Tells a training run, in all its processes at the same iteration, that it was asked to stop."""
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


class StopSignals:
    """SIGTERM and SIGUSR1 while a run trains."""

    INTERVAL = 10  # iterations between two agreements of the processes on whether one was told to stop

    def __init__(self):
        self.received = 0
        self._old_handlers: dict[int, Any] = {}

    def watch(self, runner: Runner) -> None:
        """From now on signals are noted instead of ending the process, and do not end a loader's workers."""
        loader = runner.train_dataloader
        exiting = multiprocessing.Event()
        atexit.register(exiting.set)
        loader.worker_init_fn = partial(_init_worker, loader.worker_init_fn, exiting)
        self._old_handlers = {number: signal.signal(number, self._note)
                              for number in (signal.SIGTERM, signal.SIGUSR1)}

    def unwatch(self) -> None:
        """Signals have the effect again that they had before."""
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.received = number

    def told(self, runner: Runner) -> int:
        """After an iteration: the signal that one of the processes got, the same in all of them; 0 if none."""
        if runner.iter + 1 == runner.max_iters:
            return 0
        told = torch.tensor(self.received)
        if runner.world_size > 1:
            if (runner.iter + 1) % self.INTERVAL:
                return 0
            all_reduce(told, 'max')
        return int(told)


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
