"""Stop the run when a loss or a weight is not finite, before a checkpoint can be saved."""
import math
import os
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...errors import UserError, listed
from ...registry import HOOKS

ADVICE = ('Clip gradients (optim_wrapper.clip_grad), train in float32, or lower optim_wrapper.optimizer.lr, and go on '
          'with --resume.')


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Stop the run when a loss or a weight is not finite, before a checkpoint can be saved.

    The iteration is written to ``<work_dir>/nonfinite_iter<N>_rank<R>.pth``: a dict with ``iter``,
    ``epoch``, ``seed``, ``outputs`` (the losses) and ``data_batch`` (as the data loader gave it; for
    :class:`ImageDataset` with the files' names). A loss scaler (fp16) skips steps whose gradients are not finite.
    Without one (bf16, float32) such a step makes weights that are not finite, and the next loss shows it.

    Raises:
        UserError: the run stops.
    """

    priority = 'VERY_HIGH'

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        losses = {name: value for name, value in (outputs or {}).items() if 'loss' in name}
        total = torch.as_tensor(losses['loss'] if 'loss' in losses else sum(losses.values()))
        if total.isfinite().all():  # the only place where a step waits for the device, whatever the number of losses
            return
        bad = {name: float(value) for name, value in losses.items() if not math.isfinite(value)}
        path = os.path.join(runner.work_dir, f'nonfinite_iter{runner.iter + 1}_rank{runner.rank}.pth')
        torch.save(dict(iter=runner.iter, epoch=runner.epoch, seed=runner.seed, outputs=outputs,
                        data_batch=data_batch), path)
        advice = name_bad_images(data_batch) or ADVICE
        raise UserError(f'the loss is not finite at iteration {runner.iter + 1}: {bad}. No checkpoint was written '
                        f'since; the batch is in {path}. {advice}')

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        bad = [name for name, value in checkpoint['state_dict'].items()
               if value.is_floating_point() and not value.isfinite().all()]
        if bad:
            raise UserError(f'{len(bad)} weights are not finite after iteration {runner.iter} (first: {bad[0]}). This '
                            f'checkpoint was not written. {ADVICE}')


def name_bad_images(data_batch: Any) -> str:
    """Return a sentence about the images of a batch whose pixels are not finite, '' if all are."""
    data = data_batch if isinstance(data_batch, dict) else {}
    inputs = data.get('inputs', ())
    names = data.get('paths') or [sample.get('img_path') for sample in data.get('data_samples') or ()]
    bad = [names[i] if i < len(names) else f'number {i}' for i, image in enumerate(inputs)
           if isinstance(image, torch.Tensor) and not image.isfinite().all()]
    return (f'{len(bad)} input images hold pixels that are NaN or infinite: {listed(bad)}. Write numbers there.'
            if bad else '')
