"""Tests a copy of the model whose CvT is fused, and compiled if requested."""
from copy import deepcopy

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from ...deploy.cpu import use_cpu_kernels
from ...deploy.fuse import compile_backbone, fuse
from ...registry import HOOKS


@HOOKS.register_module()
class FuseHook(Hook):
    """Tests a copy of the model whose CvT is fused, and compiled if requested.

    The copy is made when the test begins: after the checkpoint was loaded and after ``EMAHook`` put its weights in,
    whose bookkeeping needs the model as it was built.

    Args:
        compile: also compile it, for images of any size; see :func:`~cvt_dense.deploy.fuse.compile_backbone`.

    Raises:
        UserError: the model has no CvT.
    """

    priority = 'LOWEST'  # after EMAHook

    def __init__(self, compile: bool = False):
        self.compile = compile

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
        runner.model = deepcopy(self.model.module if is_model_wrapper(self.model) else self.model).eval()
        if self.compile:
            compile_backbone(runner.model)
        else:
            fuse(runner.model)
            if next(runner.model.parameters()).device.type == 'cpu':
                use_cpu_kernels(runner.model)
        runner.logger.info('The backbone is fused for the test'
                           + (' and compiled at its first image.' if self.compile else '.'))

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
