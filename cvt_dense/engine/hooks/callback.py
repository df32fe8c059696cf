"""Call a function after each evaluation of a training."""
from collections.abc import Callable
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

Callback = Callable[[int, dict[str, float]], Any]


class CallbackHook(Hook):
    """Call a function after each evaluation, and end the training if it returns something true.

    The training ends as after its last step: a checkpoint is saved, from which it can be resumed.

    Args:
        callback: takes the iteration and the metrics; the first process calls it.
    """

    priority = 'HIGH'  # after hooks that add metrics, before SafeCheckpointHook saves what may be the last checkpoint

    def __init__(self, callback: Callback):
        self.callback = callback

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        answer = [bool(self.callback(runner.iter, dict(metrics or {}))) if is_main_process() else None]
        broadcast_object_list(answer)
        if answer[0]:
            runner.train_loop.stop_training = True
