"""--amp: which optimizer wrapper trains, and where there is none."""
import pytest
from mmengine.config import Config

from cvt_dense.config.amp import check_amp, use_amp
from cvt_dense.errors import UserError
from cvt_dense.launch.machine import adapt_optimizer


def test_amp(monkeypatch):
    """bf16 is plain autocast; fp16 has a loss scale and needs a GPU; mmcv's operators have no bf16."""
    def amp(flag, scope, cuda):
        monkeypatch.setattr('torch.cuda.is_available', lambda: cuda)
        cfg = Config(dict(model=dict(type='X'), default_scope=scope, launcher='none',
                          optim_wrapper=dict(type='OptimWrapper')))
        use_amp(cfg, flag)
        check_amp(cfg, flag)
        adapt_optimizer(cfg)
        return cfg.optim_wrapper

    for cuda in (True, False):
        for flag in ('bf16', 'default'):
            assert amp(flag, 'mmseg', cuda) == dict(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
        with pytest.raises(UserError, match='--amp bf16'):
            amp('bf16', 'mmdet', cuda)
    for scope in ('mmdet', 'mmseg'):
        assert amp('fp16', scope, True) == dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
        with pytest.raises(UserError, match='--amp fp16'):
            amp('fp16', scope, False)
    assert amp('default', 'mmdet', True).dtype == 'float16'


def test_recipes_train_in_float32_without_a_gpu():
    cfg = Config(dict(optim_wrapper=dict(type='AmpOptimWrapper', dtype='bfloat16', loss_scale='dynamic',
                                         optimizer=dict(lr=1.)), launcher='none'))
    adapt_optimizer(cfg)
    assert cfg.optim_wrapper == dict(type='OptimWrapper', optimizer=dict(lr=1.))
