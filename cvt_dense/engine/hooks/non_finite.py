"""Stop the run when a loss, a weight or every gradient is not finite, before a checkpoint can be saved."""
import os
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import UserError
from ...registry import HOOKS

# Optimizer steps in a row that a loss scaler may skip. It halves its scale each time and starts at 2**16, so that
# even gradients that are too large at a scale of 1 are found long before.
MAX_SKIPPED_STEPS = 50


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Stop the run when a loss, a weight or every gradient is not finite, before a checkpoint can be saved.

    The iteration is written to ``<work_dir>/nonfinite_iter<N>_rank<R>.pth``: a dict with ``iter``,
    ``epoch``, ``seed``, ``outputs`` (the losses) and ``data_batch`` (as the data loader gave it; for
    :class:`ImageDataset` with the files' names). A loss scaler (fp16) skips a step
    whose gradients are not finite; that is normal, but not ``MAX_SKIPPED_STEPS`` times in a row. Without one
    (bf16, float32) such a step makes weights that are not finite, and the next loss shows it.

    Raises:
        UserError: the run stops.
    """

    priority = 'VERY_HIGH'
    watches = False  # whether the optimizer's steps are counted

    def before_train(self, runner: Runner) -> None:
        self.stepped, self.skipped = False, 0
        optimizer = getattr(runner.optim_wrapper, 'optimizer', None)  # none: a wrapper of several
        self.watches = optimizer is not None
        if self.watches:
            optimizer.register_step_post_hook(self._note_step)  # needs no synchronisation with the device

    def _note_step(self, *args: Any) -> None:
        self.stepped = True

    def _check_steps(self, runner: Runner) -> None:
        if not self.watches or not runner.optim_wrapper.should_update():
            return
        self.skipped = 0 if self.stepped else self.skipped + 1
        self.stepped = False
        if self.skipped >= MAX_SKIPPED_STEPS:
            raise UserError(
                f'the last {self.skipped} optimizer steps up to iteration {runner.iter + 1} were skipped, because the '
                'gradients were not finite although the loss was: nothing is learned. Training stopped. Lower the '
                'learning rate or train in float32, and continue from the last checkpoint with --resume.')

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        losses = {name: torch.as_tensor(value).detach()
                  for name, value in (outputs or {}).items() if 'loss' in name}
        bad = {name: value.item() for name, value in losses.items() if not value.isfinite().all()}
        if not bad:
            self._check_steps(runner)
            return
        path = os.path.join(runner.work_dir, f'nonfinite_iter{runner.iter + 1}_rank{runner.rank}.pth')
        torch.save(dict(iter=runner.iter, epoch=runner.epoch, seed=runner.seed, outputs=outputs,
                        data_batch=data_batch), path)
        raise UserError(
            f'the loss is not finite at iteration {runner.iter + 1} (epoch {runner.epoch + 1}): {bad}. '
            f'Training stopped; no checkpoint was written since, the batch is in {path}. Lower the learning '
            'rate, clip gradients (optim_wrapper.clip_grad), or train in float32, and continue from the last '
            'checkpoint with --resume.')

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        bad = [name for name, value in checkpoint['state_dict'].items()
               if value.is_floating_point() and not value.isfinite().all()]
        if bad:
            raise UserError(
                f'{len(bad)} weights are not finite after iteration {runner.iter} (first: {bad[0]}). '
                'Training stopped and this checkpoint was not written. Lower the learning rate or clip '
                'gradients (optim_wrapper.clip_grad), and continue from the last checkpoint with --resume.')
