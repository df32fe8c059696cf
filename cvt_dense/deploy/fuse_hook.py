"""Tests a copy of the model whose CvT is fused."""
from copy import deepcopy

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ..models.wrappers import unwrap
from ..registry import HOOKS
from .fuse import fuse


@HOOKS.register_module()
class FuseHook(Hook):
    """Tests a copy of the model whose CvT is fused.

    The copy is made when the test begins: after the checkpoint was loaded and after ``EMAHook`` put its weights in,
    whose bookkeeping needs the model as it was built.

    Raises:
        UserError: the model has no CvT.
    """

    priority = 'LOWEST'  # after EMAHook

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
        runner.model = deepcopy(unwrap(self.model)).eval()
        fuse(runner.model)
        runner.logger.info('The backbone is fused for the test.')

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
