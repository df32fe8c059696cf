"""Tests a copy of the model whose CvT is fused, and compiled if requested."""
from copy import deepcopy

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import Tensor

from ...deploy.cpu import use_cpu_kernels
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
        self.weights: dict[str, Tensor] | None = None

    def before_test_epoch(self, runner: Runner) -> None:
        self.model = runner.model
        # EMAHook writes into the parameters' data, so neither the parameters nor their versions show a change.
        weights = self.model.state_dict()
        if self.weights is None or not all(torch.equal(value, self.weights[key]) for key, value in weights.items()):
            # The copy of a wrapped model is not wrapped: without gradients there is nothing to synchronise.
            self.fused = deepcopy(self.model.module if is_model_wrapper(self.model) else self.model).eval()
            if self.compile:
                compile_backbone(self.fused)
            else:
                fuse(self.fused)
                if next(self.fused.parameters()).device.type == 'cpu':
                    use_cpu_kernels(self.fused)
            self.weights = {key: value.clone() for key, value in weights.items()}
            runner.logger.info('The backbone is fused for the test'
                               + (' and compiled at its first image.' if self.compile else '.'))
        runner.model = self.fused

    def after_test_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        runner.model = self.model
