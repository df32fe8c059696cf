"""Recompute BatchNorm's running statistics at the end of a training."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader

from ...models.wrappers import unwrap
from ...registry import HOOKS

IMAGES = 1024  # at most; at least one batch


@HOOKS.register_module()
class BatchNormStatisticsHook(Hook):
    """Recompute BatchNorm's running statistics at the end of a training, before the last checkpoint.

    After masked pretraining the statistics are those of images with hidden squares, which a network in eval mode or
    with ``norm_eval=True`` would use. This hook recomputes them on whole images of the training set, with its
    augmentation and equal weights: on ``IMAGES`` of them, evenly spread. Only the checkpoint after the last of the
    configured iterations contains the result, so it does not go together with early stopping. Weights and EMA do not
    change.
    """

    priority = 'LOW'  # before CheckpointHook

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        if not self.is_last_train_iter(runner):
            return
        model = unwrap(runner.model)
        loader, dataset = runner.train_dataloader, runner.train_dataloader.dataset
        size = loader.batch_sampler.batch_size
        number = min(max(IMAGES, size), len(dataset))
        batches = DataLoader(dataset, size, sampler=[i * len(dataset) // number for i in range(number)],
                             collate_fn=loader.collate_fn, drop_last=number > size)
        # All processes do the same: no statistics need to be shared.
        update_bn((model.data_preprocessor(batch, False)['inputs'] for batch in batches), model)
        runner.logger.info(f'The statistics of all BatchNorms were recomputed on {number} whole images.')
