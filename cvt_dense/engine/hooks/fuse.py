"""Tests a copy of the model whose CvT is fused, and compiled if requested."""
from copy import deepcopy

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from ...deploy.fuse import compile_backbone, fuse
from ...registry import HOOKS


@HOOKS.register_module()
class FuseHook(Hook):
    """Tests a copy of the model whose CvT is fused, and compiled if requested.

    The copy is made when the test begins: after the checkpoint was loaded and after ``EMAHook`` put its weights in,
    whose bookkeeping needs the model as it was built. Further tests with equal weights, as ``--corrupt`` makes, run the
    same copy, which is compiled once.

    Args:
        compile: also compile it, for images of any size; see :func:`~cvt_dense.deploy.fuse.compile_backbone`.

    Raises:
        UserError: the model has no CvT.
    """

    priority = 'LOWEST'  # after EMAHook

    def __init__(self, compile: bool = False):
        self.compile = compile
        self.weights: list[float] | None = None

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # EMAHook writes into the parameters' data, so neither the parameters nor their versions show a change.
        weights = [float(value.double().sum()) for value in self.model.state_dict().values()]
        if weights != self.weights:
            # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
            self.fused = deepcopy(self.model.module if is_model_wrapper(self.model) else self.model).eval()
            compile_backbone(self.fused) if self.compile else fuse(self.fused)
            self.weights = weights
            runner.logger.info('The backbone is fused for the test'
                               + (' and compiled at its first image.' if self.compile else '.'))
        runner.model = self.fused

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
