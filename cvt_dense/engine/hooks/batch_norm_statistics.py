"""Recompute BatchNorm's running statistics at the end of a training."""
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import IterBasedTrainLoop, Runner
from torch import nn
from torch.utils.data import DataLoader

from ...registry import HOOKS
from ..checkpoint.loaders import batch_size

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@HOOKS.register_module()
class BatchNormStatisticsHook(Hook):
    """Recompute BatchNorm's running statistics at the end of a training, before the last checkpoint.

    After masked pretraining the statistics are those of images with hidden squares, which a network in eval mode or
    with ``norm_eval=True`` would use. This hook recomputes them on whole images of the training set, with its
    augmentation and equal weights. Only the last checkpoint contains the result. Weights and EMA do not change.

    Args:
        images: number of images, evenly spread over the training set; at least one batch.
    """

    priority = 'LOW'  # before CheckpointHook

    def __init__(self, images: int = 1024):
        self.images = images

    def after_train_epoch(self, runner: Runner) -> None:
        # a loop of iterations calls this once, at its end
        if not isinstance(runner.train_loop, IterBasedTrainLoop) and self.is_last_train_epoch(runner):
            self._gather(runner)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: dict[str, Any] | None = None) -> None:
        if isinstance(runner.train_loop, IterBasedTrainLoop) and self.is_last_train_iter(runner):
            self._gather(runner)

    def _gather(self, runner: Runner) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        norms = [module for module in model.modules() if isinstance(module, NORMS) and module.track_running_stats]
        loader, dataset = runner.train_dataloader, runner.train_dataloader.dataset
        size = batch_size(loader)
        number = min(max(self.images, size), len(dataset))
        chosen = [i * len(dataset) // number for i in range(number)]
        momenta = [norm.momentum for norm in norms]
        model.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the mean of all batches
            norm.train()
        try:
            # All processes do the same: no statistics need to be shared.
            with torch.no_grad():
                for batch in DataLoader(dataset, size, sampler=chosen, collate_fn=loader.collate_fn,
                                        drop_last=number > size):
                    model(**model.data_preprocessor(batch, False), mode='tensor')
        finally:
            for norm, momentum in zip(norms, momenta):
                norm.momentum = momentum
            model.train()
        runner.logger.info(f'The statistics of {len(norms)} BatchNorms were recomputed on {number} whole images.')
