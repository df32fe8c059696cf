"""Handle stop signals in all processes of a training at the same iteration."""
import atexit
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.runner import Runner

# Windows has no SIGUSR1.
SIGNALS = [getattr(signal, name) for name in ('SIGTERM', 'SIGUSR1') if hasattr(signal, name)]


class Agreements:
    """Determines the steps at which all processes compare their numbers; all of them count the same steps.

    After every agreement the next one is ``PERIOD`` seconds or ``STEPS`` later, whichever is sooner: the earliest that
    any of them proposes from the time that its steps took. The first is after one step.
    """

    PERIOD = 5.  # seconds; steps may become four times as slow before an answer takes longer than 20
    STEPS = 10

    def __init__(self, done: int):
        self._at, self._done, self.next = time.monotonic(), done, done + 1

    def agree(self, done: int, received: int, unfinished: bool = True) -> tuple[int, bool]:
        """Compare numbers with all other processes and set the step of the next comparison.

        Args:
            done: optimizer steps that are done, the same in all processes.
            received: number of the signal that this process received, or 0.
            unfinished: whether this process has work left.

        Returns:
            The greatest ``received`` of all processes, and whether any of them is unfinished.
        """
        now = time.monotonic()
        seconds = (now - self._at) / max(done - self._done, 1)
        step = max(min(math.floor(self.PERIOD / max(seconds, 1e-9)), self.STEPS), 1)
        numbers = torch.tensor([received, -step if unfinished else -self.STEPS, unfinished])
        all_reduce(numbers, 'max')  # the maximum of negative steps is the smallest number of steps
        received, step, unfinished = numbers.tolist()
        self._at, self._done, self.next = now, done, done - step
        return received, bool(unfinished)


class StopSignals:
    """Records SIGTERM and SIGUSR1 while a run trains and evaluates.

    Several processes agree on whether one of them got a signal: after training iterations, and after an
    evaluation's batches. How many of those there are may differ between processes. One that has had its last
    takes part in the agreements that are left, so that each of them has all processes.
    """

    def __init__(self):
        self.received = 0
        self._old_handlers: dict[int, Any] = {}

    @property
    def watching(self) -> bool:
        """Return whether signals are being recorded."""
        return bool(self._old_handlers)

    def watch(self, runner: Runner) -> None:
        """Record signals from now on instead of ending the process, and keep them from ending a loader's workers."""
        self._training = Agreements(runner.iter)
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
        return self._training.agree(done, self.received)[0] if done >= self._training.next else 0

    def after_val_iter(self, runner: Runner, batch_idx: int) -> int:
        """Return the same after an evaluation's batch ``batch_idx``, or with -1 before the first one."""
        if runner.world_size == 1:
            return self.received
        done = batch_idx + 1
        if done == 0:
            self._evaluation = Agreements(0)
        last = done == len(runner.val_dataloader)
        received, others = 0, True
        while others and not received and (last or done >= self._evaluation.next):
            received, others = self._evaluation.agree(done, self.received, unfinished=not last)
        return received


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
