"""Hooks that keep a training run reproducible, honest about its data, and safe from a bad loss."""
import os
import random
from contextlib import nullcontext
from copy import deepcopy
from typing import Any, Dict, Iterable, Optional, Set

import numpy as np
import torch
from mmengine.dist import all_gather_object
from mmengine.hooks import EMAHook, Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner, autocast

from ..registry import HOOKS
from .errors import UserError


@HOOKS.register_module()
class SeedHook(Hook):
    """Seeds Python, NumPy and PyTorch before each training iteration from (seed, rank, iteration).

    So drop path, Mixup and erasing do not depend on what ran before: a resumed run draws what an
    uninterrupted one does, and no generator state has to be saved.
    """

    priority = 'VERY_HIGH'

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        seed = int(np.random.SeedSequence((runner.seed, runner.rank, runner.iter)).generate_state(1)[0])
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)


@HOOKS.register_module()
class NonFiniteLossHook(Hook):
    """Stops the run when a loss or a weight is not finite, before a checkpoint can be saved.

    The iteration is written to ``<work_dir>/nonfinite_iter<N>_rank<R>.pth``: a dict with ``iter``,
    ``epoch``, ``seed``, ``outputs`` (the losses) and ``data_batch`` (as the data loader gave it; for
    :class:`ImageDataset` with the files' names). A loss scaler's skipped step (fp16) has a finite
    loss and does not stop the run.

    Raises:
        UserError: the run stops.
    """

    priority = 'VERY_HIGH'

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                         outputs: Optional[Dict[str, Any]] = None) -> None:
        losses = {name: torch.as_tensor(value).detach()
                  for name, value in (outputs or {}).items() if 'loss' in name}
        bad = {name: value.item() for name, value in losses.items() if not value.isfinite().all()}
        if not bad:
            return
        path = os.path.join(runner.work_dir, f'nonfinite_iter{runner.iter + 1}_rank{runner.rank}.pth')
        torch.save(dict(iter=runner.iter, epoch=runner.epoch, seed=runner.seed, outputs=outputs,
                        data_batch=data_batch), path)
        raise UserError(
            f'the loss is not finite at iteration {runner.iter + 1} (epoch {runner.epoch + 1}): {bad}. '
            f'Training stopped; no checkpoint was written since, the batch is in {path}. Lower the learning '
            'rate, clip gradients (optim_wrapper.clip_grad), or use --amp bf16 instead of fp16, and '
            'continue from the last checkpoint with --resume.')

    def before_save_checkpoint(self, runner: Runner, checkpoint: Dict[str, Any]) -> None:
        bad = [name for name, value in checkpoint['state_dict'].items()
               if value.is_floating_point() and not value.isfinite().all()]
        if bad:
            raise UserError(
                f'{len(bad)} weights are not finite after iteration {runner.iter} (first: {bad[0]}). '
                'Training stopped and this checkpoint was not written. Lower the learning rate or clip '
                'gradients (optim_wrapper.clip_grad), and continue from the last checkpoint with --resume.')


@HOOKS.register_module()
class UnreadableImagesHook(Hook):
    """Names every image that :class:`ImageDataset` skipped, counts them, and stops at too many.

    Args:
        max_share: the run stops when more than this share of a data set's images cannot be read.

    Raises:
        UserError: the run stops.
    """

    def __init__(self, max_share: float = 0.05):
        if not 0. <= max_share <= 1.:
            raise ValueError(f'UnreadableImagesHook: max_share={max_share}: allowed is 0 to 1.')
        self.max_share = max_share
        self.found: Dict[str, Set[str]] = dict(train=set(), val=set(), test=set())

    def _add(self, runner: Runner, stage: str, names: Iterable[str]) -> None:
        found = self.found[stage]
        for name in names:
            if name not in found:
                found.add(name)
                runner.logger.warning(f'skipped an image that cannot be read: {name}')
        total = len(getattr(runner, f'{stage}_dataloader').dataset)
        if len(found) > self.max_share * total:
            raise UserError(
                f'{len(found)} of the {total} images for {stage} cannot be read, which is more than the '
                f'allowed share of {self.max_share:g} (the last: {name}). Repair or remove the files named '
                'in the warnings above, or raise max_share of UnreadableImagesHook in the config.')

    def _add_batch(self, runner: Runner, stage: str, data_batch: Any) -> None:
        if isinstance(data_batch, dict) and any(data_batch.get('unreadable', ())):
            self._add(runner, stage, '\n'.join(filter(None, data_batch['unreadable'])).split('\n'))

    def _add_other_ranks(self, runner: Runner, stage: str) -> None:
        names = set().union(*all_gather_object(sorted(self.found[stage])))
        if names:
            self._add(runner, stage, sorted(names))
            runner.logger.warning(f'{len(names)} images for {stage} could not be read so far and were '
                                  'skipped.')

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'train', data_batch)

    def before_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'val', data_batch)

    def before_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None) -> None:
        self._add_batch(runner, 'test', data_batch)

    def after_train_epoch(self, runner: Runner) -> None:
        self._add_other_ranks(runner, 'train')

    def after_val_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        self._add_other_ranks(runner, 'val')

    def after_test_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        self._add_other_ranks(runner, 'test')


@HOOKS.register_module()
class RawWeightsHook(Hook):
    """Beside an ``EMAHook``: evaluates the weights that are not averaged too, in the same pass.

    ``EMAHook`` evaluates the averaged weights, which are also a checkpoint's ``state_dict``; this
    hook adds the same metrics of the raw ones under ``raw/``. ``tools/test.py`` takes them from the
    checkpoint's ``ema_state_dict``. Does nothing where there are no averaged weights.
    """

    priority = 'HIGHEST'  # adds its metrics before any other hook reads them

    def __init__(self):
        self.model: Optional[torch.nn.Module] = None
        self.raw_state: Optional[Dict[str, torch.Tensor]] = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: Dict[str, Any]) -> None:
        if 'ema_state_dict' in checkpoint:
            prefix = 'module.'
            self.raw_state = {name[len(prefix):]: value.clone()
                              for name, value in checkpoint['ema_state_dict'].items()
                              if name.startswith(prefix)}

    def before_val_epoch(self, runner: Runner) -> None:
        # During evaluation EMAHook has swapped the weights: its copy holds the raw ones.
        hooks = [hook for hook in runner.hooks if isinstance(hook, EMAHook)]
        self._start(hooks[0].ema_model.module if hooks else None, runner.val_loop)

    def before_test_epoch(self, runner: Runner) -> None:
        model = None
        if self.raw_state is not None:
            model = deepcopy(runner.model.module if is_model_wrapper(runner.model) else runner.model)
            model.load_state_dict(self.raw_state)
        self._start(model, runner.test_loop)

    def _start(self, model: Optional[torch.nn.Module], loop: Any) -> None:
        self.model = model
        if model is not None:
            model.eval()
            self.loop = loop
            self.evaluator = deepcopy(loop.evaluator)

    def _process(self, data_batch: Any) -> None:
        if self.model is not None:
            # The context must not be entered for nothing: some devices have no autocast.
            with torch.no_grad(), autocast() if self.loop.fp16 else nullcontext():
                outputs = self.model.val_step(data_batch)
            self.evaluator.process(data_samples=outputs, data_batch=data_batch)

    def after_val_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                       outputs: Any = None) -> None:
        self._process(data_batch)

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None,
                        outputs: Any = None) -> None:
        self._process(data_batch)

    def _finish(self, metrics: Dict[str, float]) -> None:
        if self.model is not None:
            raw = self.evaluator.evaluate(len(self.loop.dataloader.dataset))
            metrics.update({f'raw/{name.split("/", 1)[-1]}': value for name, value in raw.items()})
            self.model = None

    def after_val_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        self._finish(metrics)

    def after_test_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        self._finish(metrics)


@HOOKS.register_module()
class FuseHook(Hook):
    """Tests a copy of the model whose parts with a ``fuse`` method, such as CvT, are fused.

    The copy is made when the test begins: after the checkpoint was loaded and after ``EMAHook`` put its
    weights in, whose bookkeeping needs the model as it was built.

    Raises:
        UserError: nothing in the model has a ``fuse`` method.
    """

    priority = 'LOWEST'  # after EMAHook

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
        model = deepcopy(self.model.module if is_model_wrapper(self.model) else self.model).eval()
        parts = [module for module in model.modules() if callable(getattr(module, 'fuse', None))]
        if not parts:
            raise UserError('--fuse: nothing in this model has a fuse() method; its backbone is no '
                            'cvt_dense.CvT.')
        for part in parts:
            part.fuse()
        runner.model = model
        runner.logger.info(f'fused for the test: {", ".join(type(part).__name__ for part in parts)}')

    def after_test_epoch(self, runner: Runner, metrics: Optional[Dict[str, float]] = None) -> None:
        runner.model = self.model
