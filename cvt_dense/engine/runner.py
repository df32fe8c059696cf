"""MMEngine's Runner, which appends to its log files when it resumes and keeps its console short."""
import copy
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import MMLogger
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from mmengine.registry import MODEL_WRAPPERS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from mmengine.visualization import Visualizer
from torch import nn

from ..config.walk import type_name
from ..console import ConsoleFilter, add_console_filter, prints_to_log
from ..errors import refusals_of
from ..models.wrappers import unwrap
from .checkpoint import StopHook
from .schedules import Curve, data_shape, learning_rates


class RunnerMixin:
    """Extends MMEngine's ``Runner``, or the one that a config's ``runner_type`` names.

    - Resumed, it appends to the log files that the run has written so far. MMEngine names a start's folder of logs
      after the time. Here a resumed run takes the name of the newest folder with training curves in the work dir,
      if there is one.
    - ``compile`` compiles the backbone. MMEngine compiles the training step with the optimizer, which torch 2.13
      refuses for groups of parameters from a config, and would do again for each learning rate.
    - ``auto_scale_lr`` counts ``optim_wrapper.accumulative_counts``, which MMEngine ignores.
    - It has a visualizer of its own, and the hooks that every run of this project has.
    - While it is built, the console shows warnings only: dumps of the config, the environment and the hooks are in
      the log file.
    - It does not dump its config: the start of a training does, and a test does not change that file.
    """

    resuming = False  # whether a checkpoint's run continues, from the moment that it is loaded
    console: ConsoleFilter | None = None

    def __init__(self, *args, resume: bool = False, **kwargs):
        self.appends = resume
        super().__init__(*args, resume=resume, **kwargs)

    @cached_property
    def timestamp(self) -> str:
        """Return the name of this start's folder of logs; a resumed run continues the newest one with curves."""
        logs = sorted(Path(self.work_dir).glob('*/vis_data/scalars.json')) if self.appends else []
        return logs[-1].parts[-3] if logs else super().timestamp

    def build_logger(self, *args, **kwargs) -> MMLogger:
        """Build the logger and limit what it prints on the console while the runner is being built."""
        logger = super().build_logger(*args, **kwargs)
        self.console = add_console_filter(logger)
        return logger

    def wrap_model(self, model_wrapper_cfg: dict[str, Any] | None, model: nn.Module) -> nn.Module:
        """Wrap the model for several processes; on CPUs without device ids, and with BN for SyncBN."""
        if not self.distributed or torch.cuda.is_available():
            return super().wrap_model(model_wrapper_cfg, model)
        self.logger.info('No GPU: SyncBN layers, if there are any, are BN.')
        options = dict(type='MMDistributedDataParallel', broadcast_buffers=False,
                       find_unused_parameters=self.cfg.get('find_unused_parameters', False))
        return MODEL_WRAPPERS.build(
            {**options, **(model_wrapper_cfg or {}), 'device_ids': None, 'module': revert_sync_batchnorm(model)})

    def resume(self, *args, **kwargs) -> None:
        """Resume from a checkpoint and remember in ``resuming`` that the run does."""
        self.resuming = True
        super().resume(*args, **kwargs)

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict[str, Any] | None = None) -> None:
        """Scale the learning rate to the total batch, gradient accumulation included."""
        counts = (self.cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1)
        if auto_scale_lr and 'base_batch_size' in auto_scale_lr and counts > 1:
            # MMEngine divides the batch per process * processes by the base.
            auto_scale_lr = dict(auto_scale_lr, base_batch_size=auto_scale_lr['base_batch_size'] / counts)
        super().scale_lr(optim_wrapper, auto_scale_lr)

    @cached_property
    def learning_rates(self) -> Curve | None:
        """Return the learning rates of the run, before it starts.

        It is None with several optimizers, without a learning rate in the config, or in another loop than MMEngine's.
        """
        lr, scaling = (self.optim_wrapper.get('optimizer') or {}).get('lr'), self.auto_scale_lr or {}
        configs = self.param_schedulers or []
        configs = [configs] if isinstance(configs, dict) else configs
        by_epoch = isinstance(self.train_loop, EpochBasedTrainLoop)
        if lr is None or not (by_epoch or isinstance(self.train_loop, IterBasedTrainLoop)) or not all(
                'type' in config for config in configs):
            return None
        if scaling.get('enable'):
            shape = data_shape(self)
            lr *= shape['world_size'] * shape['batch_size'] * shape['accumulative_counts'] / scaling['base_batch_size']
        length = self.max_epochs if by_epoch else self.max_iters
        return learning_rates(configs, lr, by_epoch, length, len(self.train_dataloader))

    def build_model(self, model: Any) -> nn.Module:
        """Build the model; a ``UserError`` names it if its class refuses a setting."""
        with refusals_of('model'):
            return super().build_model(model)

    def build_optim_wrapper(self, optim_wrapper: Any) -> Any:
        """Build the optimizer wrapper; a ``UserError`` names it if a class refuses a setting."""
        with refusals_of('optim_wrapper'):
            return super().build_optim_wrapper(optim_wrapper)

    def build_evaluator(self, *args, **kwargs) -> Any:
        """Build an evaluator; pycocotools and mmdet print meanwhile. A ``UserError`` names it if it is refused."""
        with refusals_of('an evaluator'), prints_to_log():
            return super().build_evaluator(*args, **kwargs)

    def build_visualizer(self, visualizer: Any = None) -> Visualizer:
        """Build a visualizer of this run's own; MMEngine returns an earlier run's of the same ``name``."""
        if isinstance(visualizer, dict):
            visualizer = dict(visualizer, name=self.experiment_name)
        return super().build_visualizer(visualizer)

    def register_default_hooks(self, hooks: dict[str, Any] | None = None) -> None:
        """Register the hooks of a config, and those that configs of MMDetection or of version 0.4.0 do not name."""
        ours = dict(unreadable_images='UnreadableImagesHook', stop='StopHook', resume='ResumeHook', seed='SeedHook',
                    nonfinite_loss='NonFiniteLossHook')
        given = {*map(type_name, [*(hooks or {}).values(), *(self.cfg.get('custom_hooks') or ())])}
        ours = {name: dict(type=f'cvt_dense.{kind}') for name, kind in ours.items() if kind not in given}
        with refusals_of('default_hooks'):
            super().register_default_hooks({**ours, **(hooks or {})})

    def train(self) -> Any:
        """Compile the backbone if the config has ``compile``, then train."""
        model, options = unwrap(self.model), self.cfg.get('compile')
        if hasattr(model, 'backbone') and (options is True or isinstance(options, dict)):
            self.cfg = copy.deepcopy(self.cfg)
            self.cfg.pop('compile')  # MMEngine would compile the whole training step too
            model.backbone.compile(**({} if options is True else options))
            self.logger.info('The backbone is compiled in the first iterations, which take minutes.')
        try:
            return super().train()
        except (Exception, KeyboardInterrupt):  # after SystemExit, a second signal must not kill what is ending
            for stop in [hook for hook in self.hooks if isinstance(hook, StopHook)]:
                stop.after_train(self)
            raise

    def dump_config(self) -> None:
        """Show all messages on the console from now on, since this is the last step of building a Runner."""
        self.console.level = logging.INFO


class CvTRunner(RunnerMixin, Runner):
    """Run MMEngine's ``Runner`` with the changes of :class:`RunnerMixin`."""
