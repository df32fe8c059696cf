"""Log the cost of a training."""
import sys
import time
from datetime import timedelta
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...registry import HOOKS

try:
    import resource
except ImportError:  # Windows
    resource = None


def peak_memory() -> int | None:
    """Return this process's peak memory in bytes: tensors on the GPU, or without a GPU all that was in RAM.

    None where the system does not report it.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == 'darwin' else peak * 1024  # macOS counts bytes, Linux KiB


@HOOKS.register_module()
class CostHook(Hook):
    """Logs the cost of training at its end: time, images, images/s, GPU-hours and peak memory.

    A resumed run adds what the runs before it had spent up to the checkpoint. Memory is that of the
    process with the largest: allocated by tensors on a GPU, or resident in RAM without one (unknown on Windows).
    """

    priority = 'VERY_HIGH'  # SafeCheckpointHook may evaluate and save before training starts

    def __init__(self):
        self.seconds = self.eval_seconds = self.process_seconds = 0.
        self.images = 0
        self.saved: dict[str, Any] | None = None
        self.last: float | None = None  # time up to which the cost is counted
        self.evaluating = False

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self.saved = checkpoint.get('meta', {}).get('cost')

    def before_train(self, runner: Runner) -> None:
        if runner.iter > 0 and self.saved:  # otherwise the checkpoint was another run's
            self.__dict__.update(self.saved)
        self.last = time.perf_counter()

    def _lap(self, runner: Runner) -> None:
        now = time.perf_counter()
        self.seconds += now - self.last
        self.process_seconds += (now - self.last) * runner.world_size
        if self.evaluating:
            self.eval_seconds += now - self.last
        self.last = now

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        self.images += len(data_batch['inputs']) * runner.world_size

    def before_val(self, runner: Runner) -> None:
        if self.last is not None:  # not in an evaluation without training
            self._lap(runner)
            self.evaluating = True

    def after_val(self, runner: Runner) -> None:
        if self.last is not None:
            self._lap(runner)
            self.evaluating = False

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        self._lap(runner)
        checkpoint['meta']['cost'] = dict(seconds=self.seconds, eval_seconds=self.eval_seconds,
                                          process_seconds=self.process_seconds, images=self.images)

    def after_train(self, runner: Runner) -> None:
        self._lap(runner)
        cuda = torch.cuda.is_available()
        peak = torch.tensor(peak_memory() or 0)
        all_reduce(peak, 'max')
        rate = self.images / max(self.seconds - self.eval_seconds, 1e-9)
        runner.logger.info(
            f'Cost of training: {timedelta(seconds=round(self.seconds))} (evaluation: '
            f'{timedelta(seconds=round(self.eval_seconds))}), {self.images} images, {rate:.1f} images/s; '
            f'{self.process_seconds / 3600:.3f} {"GPU" if cuda else "process"}-hours on {runner.world_size} x '
            f'{torch.cuda.get_device_name() if cuda else "CPU"}; peak memory of a process '
            f'{f"{peak.item() / 2**30:.2f} GiB" if peak else "unknown"}.')
