"""--amp: which optimizer wrapper trains, and a detector in bfloat16."""
import copy

import mmcv._ext
import pytest
import torch
from load_tool import ROOT, flags_of
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from random_batch import random_batch

from cvt_dense.launch.flags import read_training
from cvt_dense.launch.machine import adapt_to_machine

BF16 = dict(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
MODELS_BY_SCOPE = dict(mmdet='MaskRCNN', mmseg='EncoderDecoder')
FP16 = dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')


@pytest.mark.parametrize('value, scope, given, expected', [
    (['bf16'], 'mmseg', '', BF16), ([], 'mmseg', '', BF16), (['bf16'], 'mmdet', '', BF16), ([], 'mmdet', '', FP16),
    (['fp16'], 'mmseg', '', FP16), ([], 'mmseg', "dtype='float16'", FP16)])
def test_wrapper_and_precision_of_the_flag(value, scope, given, expected, monkeypatch, tmp_path):
    """bf16 is plain autocast; fp16 has a loss scale, and without a GPU it is float32."""
    for cuda in (True, False):
        monkeypatch.setattr('torch.cuda.is_available', lambda cuda=cuda: cuda)
        (tmp_path / 'mine.py').write_text(f'model = dict(type={MODELS_BY_SCOPE[scope]!r})\ndefault_scope = {scope!r}\n'
                                          f"optim_wrapper = dict(type='OptimWrapper', {given})\n")
        cfg = read_training(flags_of('train', tmp_path / 'mine.py', '--amp', *value))
        running = copy.deepcopy(cfg)
        changes = adapt_to_machine(running)
        assert running.optim_wrapper == (dict(type='OptimWrapper') if expected is FP16 and not cuda else expected)
        assert cfg.optim_wrapper == expected and bool(changes) == (running.optim_wrapper != expected)


def test_a_whole_detector_in_bfloat16(monkeypatch):
    """Losses have gradients; boxes are decoded and returned in float32; on the CPU of any machine."""
    if not mmcv._ext.__file__.endswith('.py'):
        pytest.skip('compiled mmcv has its operators in float32 and float16 only')
    cfg = Config.fromfile(ROOT / 'configs/maskrcnn_cvt_nano_shapes.py')
    cfg.model.update(type='cvt_dense.AutocastModel', replaces=cfg.model.type, dtype='bf16')
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
        batch = random_batch(model, 1, (96, 128))
    monkeypatch.setattr('mmengine.device.utils.DEVICE', 'cuda')
    dtypes = []
    model.parse_losses(model(**batch, mode='loss'))[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.neck.register_forward_hook(lambda module, args, maps: dtypes.append(maps[0].dtype))
    instances = model.eval()(**batch, mode='predict')[0].pred_instances
    assert (*dtypes, instances.bboxes.dtype, instances.scores.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert (instances.bboxes != instances.bboxes.bfloat16()).any(1).float().mean() > .5  # not rounded
