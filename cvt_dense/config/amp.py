"""Mixed precision of a training, ``tools/train.py --amp``, and of inference, ``tools/test.py --amp``."""
import importlib
import time
from typing import TYPE_CHECKING

from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import dicts

if TYPE_CHECKING:
    import torch

AMP_DTYPES = dict(fp16='float16', bf16='bfloat16')


def use_amp(cfg: Config, dtype: str) -> None:
    """Train in mixed precision.

    Args:
        cfg: changed in place.
        dtype: 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or 'default', which is 'fp16' for models with
            mmcv's operators and 'bf16' for others.
    """
    if dtype == 'default':
        dtype = 'fp16' if has_mmcv_operators(cfg) else 'bf16'
    if dtype == 'fp16':
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    else:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')


def has_mmcv_operators(cfg: Config) -> bool:
    """Return whether a model is MMDetection's or has parts of it, with RoIAlign, NMS or deformable attention."""
    types = [str(node['type']) for node in dicts([cfg.model]) if node.get('type')]
    return cfg.get('default_scope') == 'mmdet' or any(name.startswith('mmdet.') for name in types)


def check_amp(cfg: Config, dtype: str) -> None:
    """Check that the model and this machine have the mixed precision of ``--amp``.

    The log says so where a CPU computes in bfloat16 more slowly than in float32.

    Args:
        cfg: a config with a model.
        dtype: see :func:`use_amp`.

    Raises:
        UserError: the model or the machine does not support it.
    """
    import torch
    operators = has_mmcv_operators(cfg)
    if dtype == 'bf16' and operators and not importlib.import_module('mmcv._ext').__file__.endswith('.py'):
        raise UserError("--amp bf16: compiled mmcv has this model's operators (RoIAlign, NMS, deformable attention) in "
                        'float32 and float16 only. Use those of cvt_dense.ops (make setup), --amp fp16 on a GPU, or '
                        'leave the flag out.')
    if (dtype == 'fp16' or dtype == 'default' and operators) and not torch.cuda.is_available():
        raise UserError(f'--amp fp16 is for GPUs. Leave the flag out{"" if operators else ", or use --amp bf16"}.')
    if not torch.cuda.is_available():
        lower, full = (product_speed(dtype) for dtype in (torch.bfloat16, torch.float32))
        if lower < full:
            print_log(f'--amp bf16: matrix products run at {lower:.0f} GFLOP/s in bfloat16 and {full:.0f} in float32 '
                      'on this CPU. Without the flag the run is faster.', logger='current', level=30)


def product_speed(dtype: 'torch.dtype', side: int = 1024) -> float:
    """Return the GFLOP/s of a product of two square matrices on this CPU, the best of five."""
    import torch
    matrix, seconds = torch.rand(side, side).to(dtype), []
    for _ in range(5):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return 2e-9 * side**3 / min(seconds)


def use_autocast(cfg: Config, dtype: str) -> None:
    """Run the network of ``cfg`` under PyTorch's autocast.

    Args:
        cfg: changed in place.
        dtype: 'bf16' or 'fp16'.

    Raises:
        UserError: the model or the machine does not support it.
    """
    check_amp(cfg, dtype)
    cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype=dtype)
