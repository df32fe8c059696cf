"""Mixed precision in models whose detectors know float32: what each module takes and gives."""
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from .errors import UserError

HALF = (torch.bfloat16, torch.float16)


def check_device(dtype: str) -> None:
    """Whether this machine has the mixed precision of ``--amp``.

    Raises:
        UserError: 'fp16' without a GPU.
    """
    if dtype == 'fp16' and not torch.cuda.is_available():
        raise UserError('--amp fp16 is for GPUs; a CPU takes --amp bf16.')


def _cast(values: Any, wanted: Callable[[Tensor], bool], dtype: torch.dtype) -> Any:
    """``values``, nested in lists, tuples and dicts, with the tensors that are ``wanted`` in ``dtype``."""
    return tree_map(lambda value: value.to(dtype) if isinstance(value, Tensor) and wanted(value) else value, values)


def _derive(module: nn.Module, mixin: type, **attributes: Any) -> None:
    """Gives ``module`` a class of its own, its present one with ``mixin`` before it, unless it has that.

    Not hooks: heads call forward() themselves, and copies of the model keep a class.
    """
    if not isinstance(module, mixin):
        module.__class__ = type(type(module).__name__, (mixin, type(module)), attributes)


class _OutFloat32:
    """A module whose outputs are float32."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _cast(super().forward(*args, **kwargs), lambda value: value.dtype in HALF, torch.float32)


class _InAutocast(_OutFloat32):
    """A module that computes in mixed precision, of ``autocast_dtype``, and whose outputs are float32."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(next(self.parameters()).device.type, self.autocast_dtype):
            return super().forward(*args, **kwargs)


class _InFloat32:
    """A module that computes in float32, under autocast too; what it makes has the type of what came in.

    Autocast is off inside for float32 inputs as well: LayerNorms of GPUs hand them on, and linear layers inside would
    make 16 bits of them again.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        low = [value.dtype for value in tensors if value.dtype in HALF]
        args, kwargs = _cast((args, kwargs), lambda value: value.dtype in HALF, torch.float32)
        with torch.autocast(tensors[0].device.type if tensors else 'cpu', enabled=False):
            outputs = super().forward(*args, **kwargs)
        return _cast(outputs, torch.is_floating_point, low[0]) if low else outputs


def heads(model: nn.Module) -> list[nn.Module]:
    """The modules of a detector or segmentor whose outputs losses and NMS take."""
    return [module for module in model.modules() if hasattr(module, 'predict_by_feat')]


def let_heads_return_float32(model: nn.Module) -> None:
    """So that losses, NMS and whatever else follows a head, which mmcv has in float32, do in mixed precision."""
    for module in heads(model):
        _derive(module, _OutFloat32)


def run_in_autocast(module: nn.Module, dtype: torch.dtype) -> None:
    """Lets a module compute in mixed precision wherever it is called, and return float32."""
    _derive(module, _InAutocast, autocast_dtype=dtype)


def run_operators_in_float32(model: nn.Module) -> None:
    """Lets mmcv's operators (RoIAlign, deformable attention and convolutions...) take bfloat16.

    They are compiled for float32 and float16 only: '"ROIAlign_forward" not implemented for 'BFloat16''.
    """
    for module in model.modules():
        if any(cls.__module__.startswith('mmcv.ops.') for cls in type(module).__mro__):
            _derive(module, _InFloat32)
