"""Mixed precision in training."""
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.device import get_device
from mmengine.logging import print_log
from mmengine.optim import AmpOptimWrapper as MMEngineAmpOptimWrapper
from mmengine.optim import OptimWrapper
from torch import nn

from ..precision import let_heads_return_float32, run_operators_in_float32
from ..registry import OPTIM_WRAPPERS


@OPTIM_WRAPPERS.register_module()
class AmpOptimWrapper(MMEngineAmpOptimWrapper):
    """MMEngine's mixed precision, in bfloat16 for detectors too, and without a GPU.

    With ``dtype='bfloat16'`` MMEngine's ends in the first call of RoIAlign or deformable attention, which mmcv has in
    float32 and float16 only. Here these compute in float32, and so does what follows the heads, NMS and losses. For
    anyone's config, a detector's, segmentor's or classifier's::

        optim_wrapper = dict(
            type='cvt_dense.AmpOptimWrapper', dtype='bfloat16', loss_scale=dict(enabled=False),
            optimizer=dict(type='AdamW', lr=1e-4, weight_decay=0.05))

    Args:
        cpu: bfloat16 without a GPU, too, which pays on CPUs with AMX or AVX-512 BF16; others are many times slower.
            False trains there in float32, as Apple's GPUs always do.
        kwargs: MMEngine's: ``dtype``, ``loss_scale``, ``optimizer``, ...

    Raises:
        ValueError: ``cpu`` and another dtype than bfloat16 where there is no GPU.
    """

    def __init__(self, cpu: bool = False, **kwargs: Any):
        device = get_device()
        gpu = device not in ('cpu', 'mps')
        self.mixed, self.prepared = gpu or cpu and device == 'cpu', None
        if gpu:
            super().__init__(**kwargs)
            return
        dtype = kwargs.pop('dtype', None)
        if cpu and dtype not in ('bfloat16', torch.bfloat16):
            raise ValueError(f'AmpOptimWrapper: dtype={dtype!r} is for GPUs; with cpu=True it must be bfloat16.')
        if not self.mixed:
            print_log(f'{"No GPU" if device == "cpu" else device}: training in float32 instead of mixed precision.',
                      logger='current', level=30)
        for key in ('loss_scale', 'use_fsdp'):
            kwargs.pop(key, None)
        OptimWrapper.__init__(self, **kwargs)  # MMEngine's own asserts a GPU
        self.loss_scaler, self._scale_update_param = torch.amp.GradScaler('cpu', enabled=False), None
        self.cast_dtype = torch.bfloat16

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As MMEngine's; the state may be of a run without a loss scaler."""
        if not state_dict.get('loss_scaler'):
            state_dict.pop('loss_scaler', None)
        super().load_state_dict(state_dict)

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        """Around the forward pass of ``model``."""
        if not self.mixed:
            with OptimWrapper.optim_context(self, model):
                yield
            return
        if self.cast_dtype == torch.bfloat16 and self.prepared is not model:
            run_operators_in_float32(model)
            let_heads_return_float32(model)
            self.prepared = model
        with super().optim_context(model):
            yield
