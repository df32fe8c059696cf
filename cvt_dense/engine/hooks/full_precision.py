"""Evaluates float32 in float32."""
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...registry import HOOKS


@HOOKS.register_module()
class FullPrecisionHook(Hook):
    """Evaluates float32 in float32, so that scores are those of the weights on every device.

    PyTorch lets NVIDIA's GPUs compute convolutions of float32 in TF32, with 10 of 23 bits of the mantissa, and matrix
    products too where ``torch.set_float32_matmul_precision`` says so. Training keeps these settings, and an evaluation
    under autocast is not concerned.

    Args:
        tf32: evaluations keep them too: faster, and less exact.
    """

    def __init__(self, tf32: bool = False):
        self.tf32 = tf32
        self._settings: tuple[bool, str] | None = None

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode == 'train' or self.tf32:
            return
        try:
            self._settings = torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
        except RuntimeError:  # the newer names, which PyTorch does not let anyone mix with these
            runner.logger.warning('float32 is evaluated as torch.backends.*.fp32_precision says, which some code set.')
        else:
            self._set(False, 'highest')

    def _after_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode != 'train' and self._settings is not None:
            self._set(*self._settings)
            self._settings = None

    @staticmethod
    def _set(convolutions: bool, products: str) -> None:
        torch.backends.cudnn.allow_tf32 = convolutions
        torch.set_float32_matmul_precision(products)
