"""MMEngine's Runner, continuing its log files and counting accumulated gradients."""
from pathlib import Path
from typing import Any

from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner

from ..console import quiet_packages, show_on_console
from ..errors import UserError


class QuietEvaluator(Evaluator):
    """What packages print while they evaluate, as pycocotools prints its tables, goes to the log file."""

    evaluate = quiet_packages()(Evaluator.evaluate)


class Continuing:
    """What is added to MMEngine's ``Runner``, or to the one that a config's ``runner_type`` names.

    - Resumed, it appends to the log files that the run has written so far. MMEngine names a start's folder of logs
      after the time. Here a resumed run takes the name of the newest folder with training curves in the work dir,
      if there is one.
    - ``compile`` compiles the backbone. MMEngine compiles the training step with the optimizer, which torch 2.13
      refuses for groups of parameters from a config, and would do again for each learning rate.
    - ``auto_scale_lr`` counts ``optim_wrapper.accumulative_counts``, of which MMEngine knows nothing.
    - A schedule without an iteration, or a batch too small for a BatchNorm, is an error that says what to do.
    - The console shows what is about the run; the log file has everything (:mod:`cvt_dense.console`).
    - It does not dump its config, which is adapted to this machine: whoever starts a training writes down what was
      asked for, and a test leaves that alone.
    """

    def setup_env(self, env_cfg: dict[str, Any]) -> None:
        super().setup_env(env_cfg)
        if self.cfg.get('resume'):
            logs = sorted(Path(self.work_dir).glob('*/vis_data/scalars.json'))
            if logs:
                self._timestamp = logs[-1].parts[-3]

    def build_logger(self, *args, **kwargs) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        show_on_console(logger)
        return logger

    def build_evaluator(self, evaluator: Any) -> Evaluator:
        with quiet_packages():  # pycocotools
            built = super().build_evaluator(evaluator)
        return QuietEvaluator(built.metrics) if type(built) is Evaluator else built

    def load_checkpoint(self, *args, **kwargs) -> Any:
        with quiet_packages():  # it prints what it logs
            return super().load_checkpoint(*args, **kwargs)

    def scale_lr(self, optim_wrapper: OptimWrapper, auto_scale_lr: dict[str, Any] | None = None) -> None:
        counts = self.cfg.optim_wrapper.get('accumulative_counts', 1)
        if auto_scale_lr and 'base_batch_size' in auto_scale_lr and counts > 1:
            # MMEngine divides the batch per process * processes by the base.
            auto_scale_lr = dict(auto_scale_lr, base_batch_size=auto_scale_lr['base_batch_size'] / counts)
        super().scale_lr(optim_wrapper, auto_scale_lr)

    def build_param_scheduler(self, scheduler: Any) -> Any:
        try:
            return super().build_param_scheduler(scheduler)
        except ValueError as error:  # a part of an epoch may be less than an iteration
            if 'end should be larger than begin' not in str(error):
                raise
            raise UserError(f'param_scheduler: {str(error).rstrip(".")}, counted in iterations. An epoch has '
                            f'{len(self.train_dataloader)}, the training {self.max_iters}: shorten the warm-up, or '
                            'train for longer.') from error

    def train(self) -> Any:
        try:
            return super().train()
        except ValueError as error:
            if 'Expected more than 1 value per channel' not in str(error):
                raise
            # PyTorch's BatchNorm; UperNet, PSPNet and DeepLab pool to one value an image.
            raise UserError(f'train_dataloader.batch_size={self.train_dataloader.batch_size}: a BatchNorm here gets '
                            'one value of each channel, of which there is no deviation. Train on 2 images a GPU '
                            'or more, or with norm_cfg=dict(type="GN", num_groups=32) in the heads.') from error

    def _maybe_compile(self, target: str) -> None:
        model = self.model.module if is_model_wrapper(self.model) else self.model
        options, backbone = self.cfg.get('compile'), getattr(model, 'backbone', None)
        if backbone is not None and (options is True or isinstance(options, dict)):
            backbone.compile(**({} if options is True else options))
            self.logger.info('The backbone is compiled in the first iterations, which take minutes.')
        else:
            super()._maybe_compile(target)

    def dump_config(self) -> None:
        pass


class ContinuingRunner(Continuing, Runner):
    """MMEngine's ``Runner`` with what ``Continuing`` adds."""
