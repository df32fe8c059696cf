"""Tells a training run, in all its processes at the same moment, that it was asked to stop."""
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
from mmengine.runner import BaseLoop, Runner

# Windows has no SIGUSR1.
SIGNALS = [getattr(signal, name) for name in ('SIGTERM', 'SIGUSR1') if hasattr(signal, name)]


class StopSignals:
    """SIGTERM and SIGUSR1 while a run trains and evaluates.

    Several processes agree on whether one of them was told to stop. While they train they do so every ``PERIOD``
    seconds or ``ITERATIONS``, whichever is sooner: at each agreement they set the iteration of the next one, the
    earliest that any of them proposes from the time that its iterations took. In an evaluation, whose length may
    differ between them, each comes to one agreement: at once if it was told, otherwise after its last batch.
    """

    PERIOD = 5.  # seconds; iterations may become four times as slow before an answer takes longer than 20
    ITERATIONS = 10

    def __init__(self):
        self.received = 0
        self._old_handlers: dict[int, Any] = {}

    def watch(self, runner: Runner) -> None:
        """From now on signals are noted instead of ending the process, and do not end a loader's workers."""
        self._agreed_at, self._agreed_iter, self._next_iter = time.monotonic(), runner.iter, runner.iter + 1
        exiting = multiprocessing.Event()
        atexit.register(exiting.set)
        # Not runner.test_loop, which would build one where there is none yet.
        for loop in (runner.train_loop, runner.val_loop, runner._test_loop):
            if isinstance(loop, BaseLoop):
                loop.dataloader.worker_init_fn = partial(_init_worker, loop.dataloader.worker_init_fn, exiting)
        self._old_handlers = {number: signal.signal(number, self._note) for number in SIGNALS}

    def unwatch(self) -> None:
        """Signals have the effect again that they had before."""
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.received = number

    def told(self, runner: Runner) -> int:
        """After a training iteration: the signal that one of the processes got, the same in all; 0 if none."""
        done = runner.iter + 1
        if done == runner.max_iters:
            return 0
        if runner.world_size == 1:
            return self.received
        if done < self._next_iter:
            return 0
        now = time.monotonic()
        seconds = (now - self._agreed_at) / max(done - self._agreed_iter, 1)
        # The maximum of the negative numbers is the earliest proposal.
        told, step = self._agree(self.received, -max(min(math.floor(self.PERIOD / seconds), self.ITERATIONS), 1))
        self._agreed_at, self._agreed_iter, self._next_iter = now, done, done - step
        return told

    def told_in_evaluation(self, runner: Runner, batch_idx: int) -> int:
        """The same after an evaluation's batch ``batch_idx``, or with -1 before the first one."""
        if runner.world_size == 1:
            return self.received
        if batch_idx < 0:
            self._agreed_in_evaluation = False
        last = batch_idx + 1 == len(runner.val_dataloader)
        if self._agreed_in_evaluation or not (self.received or last):
            return 0
        self._agreed_in_evaluation = True
        return self._agree(self.received)[0]

    @staticmethod
    def _agree(*numbers: int) -> list[int]:
        """The maximum of each number over all processes."""
        agreed = torch.tensor(numbers)
        all_reduce(agreed, 'max')
        return agreed.tolist()


def _init_worker(init: Callable[[int], None] | None, exiting: Any, worker_id: int) -> None:
    """Start of a data loader's worker.

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
