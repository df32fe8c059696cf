"""Tests a copy of the model whose parts with a ``fuse`` method, such as CvT, are fused."""
from copy import deepcopy

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from ...errors import UserError
from ...registry import HOOKS


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

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
