"""MMEngine's Runner, which appends to its log files when it resumes and keeps its console short."""
import copy
import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.logging import MMLogger
from mmengine.model import revert_sync_batchnorm
from mmengine.optim import OptimWrapper
from mmengine.registry import HOOKS, MODEL_WRAPPERS, RUNNERS
from mmengine.runner import BaseLoop, Runner
from mmengine.visualization import Visualizer
from torch import nn

from ..atomic import atomic_path
from ..console import add_console_filter, prints_to_log
from ..errors import refusals_of
from ..models.wrappers import unwrap
from ..recipes import recipe
from ..weights.strict_loading import StrictLoading, pretrained_cfgs
from .checkpoint import StopHook, Stopped
from .schedules import Curve

DEFAULTS = '_base_/default_runtime.py'  # the recipe that lists the hooks of every run
THE_CONFIGS = 'checkpoint', 'head_classes'  # hooks of that list that decide about weights: a config names them, or not


@RUNNERS.register_module()
class CvTRunner(Runner):
    """Extends MMEngine's ``Runner``.

    - Resumed, it appends to the log files that the run has written so far. MMEngine names a start's folder of logs
      after the time. Here a resumed run takes the name of the newest folder with training curves in the work dir,
      if there is one.
    - ``compile`` compiles the backbone. MMEngine compiles the training step with the optimizer, which torch 2.13
      refuses for groups of parameters from a config, and would do again for each learning rate.
    - ``auto_scale_lr`` counts ``optim_wrapper.accumulative_counts``, which MMEngine ignores.
    - It has a visualizer of its own, and the hooks of :data:`DEFAULTS` that a config does not name.
    - While it is built, the console shows warnings only: dumps of the config, the environment and the hooks are in
      the log file.
    - A training saves its config, as MMEngine does for each Runner, but not over the file that it was read from.
    """

    resuming = False  # whether a checkpoint's run continues, from the moment that it is loaded
    trained: Any = None  # the file, with its ``source`` and ``content``, whose weights a test has in its model already
    changes: Sequence[str] = ()  # how the config that runs differs from the user's, in words
    rates: Curve | None = None  # the learning rates of a training

    def __init__(self, *args, resume: bool = False, **kwargs):
        self.appends = resume
        super().__init__(*args, resume=resume, **kwargs)
        self.console.level = logging.INFO

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

    def load_or_resume(self) -> None:
        """Load a checkpoint as MMEngine does; of a test, whose model has the weights, hooks get its content."""
        if self.trained is None:
            super().load_or_resume()
        else:
            self.call_hook('after_load_checkpoint', checkpoint=self.trained.content)

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
        """Register the hooks of a config, and those of :data:`DEFAULTS` that it does not name."""
        hooks, custom = dict(hooks or {}), self.cfg.get('custom_hooks') or ()
        named = [hook for hook in (*hooks.values(), *custom) if isinstance(hook, dict) and 'type' in hook]
        given = [HOOKS.get(hook['type']) if isinstance(hook['type'], str) else hook['type'] for hook in named]
        defaults = Config.fromfile(recipe(DEFAULTS)).default_hooks
        for name, hook in defaults.items():
            kind = HOOKS.get(hook.type)
            if hook.type.startswith('cvt_dense.') and name not in THE_CONFIGS and hooks.get(name, {}) is not None and (
                    not any(issubclass(other or object, kind) for other in given)):
                hooks[name] = {**hook, **hooks.get(name, {})}
        hooks = {name: hook for name, hook in hooks.items() if hook is not None or name not in defaults}
        with refusals_of('default_hooks'):
            super().register_default_hooks(hooks)

    def train(self) -> Any:
        """Train, without the pretrained weights that a checkpoint replaces, and with ``compile`` of the backbone."""
        self.save_config()
        model, options = unwrap(self.model), self.cfg.get('compile')
        leave_replaced_weights_out(model, self._load_from, self._resume)
        if hasattr(model, 'backbone') and (options is True or isinstance(options, dict)):
            self.cfg = copy.deepcopy(self.cfg)
            self.cfg.pop('compile')  # MMEngine would compile the whole training step too
            model.backbone.compile(**({} if options is True else options))
            self.logger.info('The backbone is compiled in the first iterations, which take minutes.')
        try:
            return super().train()
        except Stopped:  # a second signal must not kill the process that is ending
            raise
        except (Exception, KeyboardInterrupt):
            self.restore_signals()
            raise
        finally:
            self.end_workers()

    def test(self) -> dict[str, float]:
        """Test, and end the workers of the data loader."""
        try:
            return super().test()
        finally:
            self.end_workers()

    def end_workers(self) -> None:
        """End the workers of data loaders, which begin again if a loop runs again.

        Python's garbage collector would close the workers' queues first. PyTorch's iterator could then no longer ask
        them to end, and would wait five seconds for each.
        """
        for loop in (self._train_loop, self._val_loop, self._test_loop):
            if isinstance(loop, BaseLoop):
                loop.dataloader._iterator = None
                getattr(loop, 'dataloader_iterator', loop.dataloader)._iterator = None  # that of a loop by iterations

    def restore_signals(self) -> None:
        """Give signals back what they did before the training."""
        for stop in [hook for hook in self.hooks if isinstance(hook, StopHook)]:
            stop.after_train(self)

    def dump_config(self) -> None:
        """Leave the config to :meth:`train`, because the run may still be refused when MMEngine calls this."""

    def save_config(self) -> None:
        """Save the config of a training in its folder, unless it was read from that file."""
        saved = Path(self.work_dir, Path(self.cfg.filename or 'config.py').name)
        read_from_it = saved.exists() and self.cfg.filename and saved.samefile(self.cfg.filename)
        if is_main_process() and not read_from_it:
            with atomic_path(saved) as partial:
                self.cfg.dump(partial)


def leave_replaced_weights_out(model: nn.Module, checkpoint: str | None, resume: bool) -> None:
    """Leave the pretrained weights out that a training reads before those of its checkpoint replace them.

    Args:
        model: gets no ``init_cfg`` in such modules.
        checkpoint: it holds the weights of this project's modules at least.
        resume: whether it holds all weights.
    """
    for module in model.modules() if checkpoint else ():
        if pretrained_cfgs(module) and (resume or isinstance(module, StrictLoading)):
            module.init_cfg = None
