"""Mixed precision of a training, ``tools/train.py --amp``, and of inference, ``tools/test.py --amp``."""
from mmengine.config import Config


def use_amp(cfg: Config, dtype: str) -> None:
    """Train in mixed precision.

    Args:
        cfg: changed in place.
        dtype: 'fp16', with a dynamic loss scale; 'bf16', on CPUs too; or 'default', which is 'fp16' for detectors,
            because compiled mmcv has no operators for bfloat16, and 'bf16' for others.
    """
    if dtype == 'default':
        dtype = 'fp16' if cfg.get('default_scope') == 'mmdet' else 'bf16'
    if dtype == 'fp16':
        cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
    else:
        cfg.optim_wrapper.pop('loss_scale', None)
        cfg.optim_wrapper.update(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')


def use_autocast(cfg: Config, dtype: str) -> None:
    """Run the network of ``cfg`` under PyTorch's autocast.

    Args:
        cfg: changed in place.
        dtype: 'bf16' or 'fp16'.
    """
    cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype=dtype)
