"""Evaluate the weights of the optimizer beside the averaged weights of an ``EMAHook``, in the same pass."""
from copy import deepcopy
from typing import Any

import torch
from mmengine.hooks import EMAHook, Hook
from mmengine.runner import Runner, autocast

from ...metrics import RAW
from ...models.wrappers import innermost, unwrap
from ...registry import HOOKS
from ...weights import select_weights


@HOOKS.register_module()
class RawWeightsHook(Hook):
    """Evaluate the weights of the optimizer beside the averaged weights of an ``EMAHook``, in the same pass.

    ``EMAHook`` evaluates the averaged weights, which are also a checkpoint's ``state_dict``; this
    hook adds the same metrics of the raw ones, with ``raw/`` before their names. ``tools/test.py`` takes them from the
    checkpoint's ``ema_state_dict``. Does nothing where there are no averaged weights.
    """

    priority = 'HIGHEST'  # adds its metrics before any other hook reads them

    def __init__(self):
        self.model: torch.nn.Module | None = None
        self.raw_state: dict[str, torch.Tensor] | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        # A training has both sets of weights in its model and EMAHook's; only a test needs them from the file.
        if 'ema_state_dict' in checkpoint and isinstance(runner.optim_wrapper, dict | None):
            self.raw_state = {name: value.clone() for name, value in select_weights(checkpoint, 'raw').items()}

    def before_val_epoch(self, runner: Runner) -> None:
        # During evaluation EMAHook has swapped the weights: its copy holds the raw ones.
        hooks = [hook for hook in runner.hooks if isinstance(hook, EMAHook)]
        self._start(hooks[0].ema_model.module if hooks else None, runner.val_loop)

    def before_test_epoch(self, runner: Runner) -> None:
        model = None
        if self.raw_state is not None:
            model = deepcopy(unwrap(runner.model))
            innermost(model).load_state_dict(self.raw_state)
        self._start(model, runner.test_loop)

    def _start(self, model: torch.nn.Module | None, loop: Any) -> None:
        self.model = model
        if model is not None:
            model.eval()
            self.loop = loop
            self.evaluator = deepcopy(loop.evaluator)
            for metric in self.evaluator.metrics:
                metric.outfile_prefix = metric.output_dir = None  # the saved predictions are the averaged weights'

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if self.model is not None:
            with torch.no_grad(), autocast(enabled=self.loop.fp16):
                outputs = self.model.test_step(data_batch)
            self.evaluator.process(data_samples=outputs, data_batch=data_batch)

    after_test_iter = after_val_iter

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        if self.model is not None:
            raw = self.evaluator.evaluate(len(self.loop.dataloader.dataset))
            metrics.update({RAW + name: value for name, value in raw.items()})
            self.model = None

    after_test_epoch = after_val_epoch
