"""Compute the loss of the images that are evaluated."""
import copy
import re
from collections import defaultdict
from typing import Any

import torch
from mmengine.dataset import Compose
from mmengine.dist import all_reduce
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn
from torch.utils.data import DataLoader

from ...errors import UserError
from ...registry import HOOKS
from ..checkpoint.loaders import copy_loader

MAPS = ('LoadAnnotations', 'LoadPanopticAnnotations')


@HOOKS.register_module()
class ValLossHook(Hook):
    """Add the validation loss to the metrics of an evaluation: ``val/loss`` and its parts.

    It is computed in a pass of its own, with the weights that are evaluated (averaged ones where there is an
    ``EMAHook``), without augmentation, dropout or drop path, and with BatchNorm's stored statistics. Annotations are
    loaded before an image is resized, as in training; MMDetection's and MMSegmentation's test pipelines load them
    afterwards. Boxes and queries that a loss draws at random are the same in each evaluation.

    Args:
        batches: batches of the validation set, from its first, for each process. Default: all of them.

    Raises:
        UserError: the validation set is one of several, which have no common pipeline.
    """

    priority = 'HIGHEST'  # adds its metrics before other hooks read them, and before EMAHook takes its weights away

    def __init__(self, batches: int | None = None):
        self.batches = batches

    def before_train(self, runner: Runner) -> None:
        # MMEngine logs the mean over the last values of everything with 'loss' in its name, as is right for iterations.
        pattern = runner.log_processor.mean_pattern.pattern
        runner.log_processor.mean_pattern = re.compile(f'^(?!val/).*?(?:{pattern})')

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        training = {module: module.training for module in model.modules()}
        model.train()  # some heads give their losses' inputs in training alone
        for module in model.modules():
            if not list(module.children()) or module is getattr(model, 'backbone', None):
                module.eval()
        sums: dict[str, float] = defaultdict(float)
        images = 0
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(0)
            for i, batch in enumerate(loader_with_annotations(runner.val_dataloader)):
                if i == self.batches:
                    break
                data = self._preprocess(model, batch)
                parsed = model.parse_losses(model(**data, mode='loss'))[1]
                images += len(data['inputs'])
                for name, value in parsed.items():
                    sums[name] += value.item() * len(data['inputs'])
        for module, mode in training.items():
            module.training = mode
        total = torch.tensor([images, *(sums[name] for name in sorted(sums))], dtype=torch.float64)
        all_reduce(total)
        metrics.update({f'val/{name}': (value / total[0]).item() for name, value in zip(sorted(sums), total[1:])})

    @staticmethod
    def _preprocess(model: nn.Module, batch: Any) -> dict[str, Any]:
        """Return a batch on the model's device, padded as in training, without its augmentation."""
        preprocessor = copy.copy(model.data_preprocessor)
        training = hasattr(preprocessor, 'batch_augments')  # of a classifier, training means Mixup
        preprocessor.batch_augments = None
        data = preprocessor(batch, training)
        return {key: value for key, value in data.items() if key in ('inputs', 'data_samples', 'labels')}


def loader_with_annotations(loader: DataLoader) -> DataLoader:
    """Return a validation loader whose pipeline loads annotations before the image is resized.

    Args:
        loader: of a data set with MMDetection's or MMSegmentation's pipeline, or of another one, which is returned.

    Raises:
        UserError: its data set joins several.
    """
    dataset = loader.dataset
    if hasattr(dataset, 'datasets'):
        raise UserError(f'ValLossHook: val_dataloader.dataset is a {type(dataset).__name__}, which has no pipeline of '
                        'its own. Leave the hook out.')
    steps = list(getattr(getattr(dataset, 'pipeline', None), 'transforms', ()))
    late = [step for step in steps if type(step).__name__ in MAPS]
    if not late:
        return loader
    first = next(i for i, step in enumerate(steps) if type(step).__name__.startswith('LoadImage'))
    others = [step for step in steps if step not in late]
    dataset = copy.copy(dataset)
    dataset.pipeline = Compose([])
    dataset.pipeline.transforms = [*others[:first + 1], *late, *others[first + 1:]]
    order = dict(batch_sampler=loader.batch_sampler)
    return copy_loader(loader, dataset, **order)
