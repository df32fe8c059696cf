"""--amp: which optimizer wrapper trains, and where there is none."""
from contextlib import nullcontext

import mmcv._ext
import pytest
import torch
from _random_batch import random_batch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from cvt_dense.config import amp
from cvt_dense.config.amp import check_amp, use_amp, use_autocast
from cvt_dense.errors import UserError
from cvt_dense.launch.machine import adapt_optimizer


def test_amp(monkeypatch):
    """bf16 is plain autocast; fp16 has a loss scale and needs a GPU; mmcv's compiled operators have no bf16."""
    def train(flag, scope, cuda):
        monkeypatch.setattr('torch.cuda.is_available', lambda: cuda)
        cfg = Config(dict(model=dict(type='X'), default_scope=scope, launcher='none',
                          optim_wrapper=dict(type='OptimWrapper')))
        use_amp(cfg, flag)
        check_amp(cfg, flag)
        adapt_optimizer(cfg)
        return cfg.optim_wrapper

    for cuda in (True, False):
        for flag in ('bf16', 'default'):
            assert train(flag, 'mmseg', cuda) == dict(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
        for file in ('_ext.py', '_ext.so'):
            monkeypatch.setattr(mmcv._ext, '__file__', file)
            with pytest.raises(UserError, match='--amp bf16') if file == '_ext.so' else nullcontext():
                train('bf16', 'mmdet', cuda)
    for scope in ('mmdet', 'mmseg'):
        assert train('fp16', scope, True) == dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')
        with pytest.raises(UserError, match='--amp fp16'):
            train('fp16', scope, False)
    assert train('default', 'mmdet', True).dtype == 'float16'


def test_a_whole_detector_in_bfloat16():
    """Losses have gradients; boxes and scores are float32, as metrics need them."""
    if not mmcv._ext.__file__.endswith('.py'):
        pytest.skip('compiled mmcv has its operators in float32 and float16 only')
    cfg = Config.fromfile('configs/maskrcnn_cvt_nano_shapes.py')
    use_autocast(cfg, 'bf16')
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
        batch = random_batch(model, 1, (96, 128))
    sum(value.sum() for losses in model(**batch, mode='loss').values()
        for value in (losses if isinstance(losses, list) else [losses])).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    found = model.eval()(**batch, mode='predict')[0].pred_instances
    assert len(found) and found.bboxes.dtype == found.scores.dtype == torch.float32


@pytest.mark.parametrize('slower', [True, False])
def test_a_cpu_that_is_slow_in_bfloat16_is_told_of(monkeypatch, slower):
    monkeypatch.setattr(amp, 'product_speed', lambda dtype: 2. if (dtype == torch.float32) == slower else 1.)
    messages = []
    monkeypatch.setattr(amp, 'print_log', lambda text, **kwargs: messages.append(text))
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    check_amp(Config(dict(model=dict(type='X'), default_scope='mmseg')), 'bf16')
    assert len(messages) == slower
