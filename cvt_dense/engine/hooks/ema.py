"""MMEngine's averaged weights, updated with each step of the optimizer."""
from typing import Any

from mmengine.hooks import EMAHook as MMEngineEMAHook
from mmengine.runner import Runner

from ...registry import HOOKS


@HOOKS.register_module()
class EMAHook(MMEngineEMAHook):
    """Average the weights after each step of the optimizer; MMEngine's ``EMAHook`` does so after each iteration.

    With k accumulated iterations a step, MMEngine's hook adds the same weights to the average k times, which makes
    the average k times shorter. With this hook, 8 GPUs and one GPU with 8 accumulated iterations have the same
    average.

    Args: as for MMEngine's ``EMAHook``. ``begin_iter`` counts iterations, ``momentum`` is per step.
    """

    def before_train(self, runner: Runner) -> None:
        """Begin with the weights that the run begins with; MMEngine's hook copies them before ``init_weights``."""
        super().before_train(runner)
        if not self.ema_model.steps:
            self.ema_model.module.load_state_dict(self.src_model.state_dict())

    def before_val_epoch(self, runner: Runner) -> None:
        """Evaluate with BatchNorm's statistics of now, which MMEngine's hook copies after each iteration."""
        if not self.ema_model.update_buffers:
            for averaged, source in zip(self.ema_model.module.buffers(), self.src_model.buffers()):
                averaged.copy_(source)
        super().before_val_epoch(runner)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        # should_update() refers to the last iteration, because the wrapper has counted it already.
        if runner.optim_wrapper.should_update():
            super().after_train_iter(runner, batch_idx, data_batch, outputs)
