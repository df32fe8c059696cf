"""Compute the loss of the images that are evaluated."""
import copy
import re
from collections import defaultdict
from typing import Any

import torch
from mmcv.transforms import LoadAnnotations
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from ...metrics import LOSSES
from ...models.wrappers import unwrap
from ...registry import HOOKS
from ..checkpoint.loaders import copy_loader
from ..samplers import is_reader, transforms_of


@HOOKS.register_module()
class ValLossHook(Hook):
    """Add the validation loss to the metrics of an evaluation: ``val/loss`` and its parts.

    It is computed in a pass of its own, with the weights that are evaluated (averaged ones where there is an
    ``EMAHook``), without augmentation, dropout or drop path, and with BatchNorm's stored statistics. Annotations are
    loaded before an image is resized, as in training; MMDetection's and MMSegmentation's test pipelines load them
    afterwards. Boxes and queries that a loss draws at random are the same in each evaluation.
    """

    priority = 'HIGHEST'  # adds its metrics before other hooks read them, and before EMAHook takes its weights away

    def before_train(self, runner: Runner) -> None:
        # MMEngine logs the mean over the last values of everything with 'loss' in its name, as is right for iterations.
        pattern = runner.log_processor.mean_pattern.pattern
        runner.log_processor.mean_pattern = re.compile(f'^(?!val/).*?(?:{pattern})')

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        if not metrics:  # of no detection; save_best='auto' of MMEngine would take the loss for the main metric
            return
        model = copy.deepcopy(unwrap(runner.model)).train()  # some heads give their losses' inputs in training alone
        for module in model.modules():
            if not list(module.children()) or module is getattr(model, 'backbone', None):
                module.eval()
        # MMDetection's and MMSegmentation's preprocessors pad annotations with training=True alone; the classifier's
        # would apply Mixup.
        pads = hasattr(model.data_preprocessor, 'batch_augments')
        if pads:
            model.data_preprocessor.batch_augments = None
        images, sums = 0, defaultdict(float)  # sums of the device's numbers, which are read once, after the last batch
        # The sampler repeats images, so that all processes have as many; they count once.
        left = max(len(range(runner.rank, len(runner.val_dataloader.dataset), runner.world_size)), 1)
        loader = runner.val_dataloader
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            for batch in copy_loader(loader, loader.batch_sampler, with_annotations(loader.dataset)):
                if not left:
                    break
                batch = {key: values[:left] for key, values in batch.items()}
                left -= len(batch['inputs'])
                data = model.data_preprocessor(batch, pads)
                unreadable = batch.get('unreadable', ())  # black images; indexing waits for the device, so only if any
                if any(unreadable):
                    readable = [i for i, reason in enumerate(unreadable) if not reason]
                    data = {key: values[readable] if isinstance(values, Tensor) else [values[i] for i in readable]
                            for key, values in data.items()}
                if not len(data['inputs']):
                    continue
                images += len(data['inputs'])
                for name, value in model.parse_losses(model(**data, mode='loss'))[1].items():
                    sums[name] += value.double() * len(data['inputs'])
        names = sorted(sums)
        totals = torch.stack([*(sums[name] for name in names), torch.full_like(sums[names[0]], images)])
        all_reduce(totals)
        *totals, images = totals.tolist()
        metrics.update({LOSSES + name: total / images for name, total in zip(names, totals)})


def with_annotations(dataset: Any) -> Any:
    """Return a copy of a data set, or of a wrapper with copies inside, that loads annotations before the resize."""
    dataset = copy.copy(dataset)
    if hasattr(dataset, 'datasets'):
        dataset.datasets = list(map(with_annotations, dataset.datasets))
    elif hasattr(dataset, 'dataset'):
        dataset.dataset = with_annotations(dataset.dataset)
    elif steps := transforms_of(dataset):
        late = [step for step in steps if isinstance(step, LoadAnnotations)]
        first = next((i for i, step in enumerate(steps) if is_reader(step)), -1)
        others = [step for step in steps if step not in late]
        dataset.pipeline = copy.copy(dataset.pipeline)
        dataset.pipeline.transforms = [*others[:first + 1], *late, *others[first + 1:]]
    return dataset
