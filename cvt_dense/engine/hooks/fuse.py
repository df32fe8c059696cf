"""Tests a copy of the model whose parts with a ``fuse`` method, such as CvT, are fused."""
from copy import deepcopy

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn

from ...errors import UserError
from ...registry import HOOKS


def fuse_parts(model: nn.Module, compile: bool = False) -> list[str]:
    """Fuses the parts of ``model`` with a ``fuse`` method, such as CvT, in place, and returns their classes' names.

    Args:
        model: with its weights loaded, in eval mode.
        compile: also compile them, for any size; see ``CvT.fuse``.

    Raises:
        UserError: nothing in it has a ``fuse`` method.
    """
    # timm's LeViT and others have layers with another fuse(), which returns a new one.
    parts = [module for module in model.modules() if callable(getattr(module, 'fuse', None))
             and hasattr(module, 'out_channels')]
    inside = {module for part in parts for module in part.modules() if module is not part}  # blocks have it too
    outer = [part for part in parts if part not in inside]
    if not outer:
        raise UserError('--fuse, --compile: nothing in this model has a fuse() method; its backbone is no '
                        'cvt_dense.CvT.')
    for part in outer:
        part.fuse(compile=True) if compile else part.fuse()
    return [type(part).__name__ for part in outer]


@HOOKS.register_module()
class FuseHook(Hook):
    """Tests a copy of the model whose parts with a ``fuse`` method, such as CvT, are fused.

    The copy is made when the test begins: after the checkpoint was loaded and after ``EMAHook`` put its
    weights in, whose bookkeeping needs the model as it was built. Further tests with equal weights, as ``--corrupt``
    makes, run the same copy, which is compiled once.

    Args:
        compile: also compile them, for any size; see ``CvT.fuse``.

    Raises:
        UserError: nothing in the model has a ``fuse`` method.
    """

    priority = 'LOWEST'  # after EMAHook

    def __init__(self, compile: bool = False):
        self.compile = compile
        self.weights: list[float] | None = None

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # EMAHook writes into the parameters' data: neither they nor their versions tell that they are others.
        weights = [float(value.double().sum()) for value in self.model.state_dict().values()]
        if weights != self.weights:
            # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
            self.fused = deepcopy(self.model.module if is_model_wrapper(self.model) else self.model).eval()
            names = fuse_parts(self.fused, self.compile)
            self.weights = weights
            done = 'fused, to be compiled at the first image,' if self.compile else 'fused'
            runner.logger.info(f'{done} for the test: {", ".join(names)}')
        runner.model = self.fused

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
