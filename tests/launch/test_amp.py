"""--amp: which optimizer wrapper trains, and a detector in bfloat16."""
import copy

import mmcv._ext
import pytest
import torch
from load_tool import ROOT
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope
from random_batch import random_batch

from cvt_dense.launch.build import adapt_to_machine
from cvt_dense.launch.runs import TrainRun
from cvt_dense.launch.settings import read_training
from cvt_dense.models.autocast import return_float32

BF16 = dict(type='cvt_dense.AutocastOptimWrapper', dtype='bfloat16')
MODELS_BY_SCOPE = dict(mmdet='MaskRCNN', mmseg='EncoderDecoder')
FP16 = dict(type='AmpOptimWrapper', dtype='float16', loss_scale='dynamic')


@pytest.mark.parametrize('value, scope, given, expected', [
    ('bf16', 'mmseg', '', BF16), ('default', 'mmseg', '', BF16), ('bf16', 'mmdet', '', BF16),
    ('default', 'mmdet', '', FP16), ('fp16', 'mmseg', '', FP16), ('default', 'mmseg', "dtype='float16'", FP16)])
def test_wrapper_and_precision_of_the_flag(value, scope, given, expected, monkeypatch, tmp_path):
    """bf16 is plain autocast; fp16 has a loss scale, and without a GPU it is float32."""
    for cuda in (True, False):
        monkeypatch.setattr('torch.cuda.is_available', lambda cuda=cuda: cuda)
        (tmp_path / 'mine.py').write_text(f'model = dict(type={MODELS_BY_SCOPE[scope]!r})\ndefault_scope = {scope!r}\n'
                                          'train_dataloader = dict()\n'
                                          f"optim_wrapper = dict(type='OptimWrapper', {given})\n")
        cfg = read_training(TrainRun(tmp_path / 'mine.py', amp=value))
        running = copy.deepcopy(cfg)
        changes = adapt_to_machine(running)
        assert running.optim_wrapper == (dict(type='OptimWrapper') if expected is FP16 and not cuda else expected)
        assert cfg.optim_wrapper == expected and bool(changes) == (running.optim_wrapper != expected)


def test_a_whole_detector_in_bfloat16():
    """Losses have gradients; boxes are decoded and returned in float32; on the CPU of any machine."""
    if not mmcv._ext.__file__.endswith('.py'):
        pytest.skip('compiled mmcv has its operators in float32 and float16 only')
    cfg = Config.fromfile(ROOT / 'configs/maskrcnn_cvt_nano_shapes.py')
    with DefaultScope.overwrite_default_scope('mmdet'):
        model = MODELS.build(cfg.model)
        batch = random_batch(model, 1, (96, 128))
    return_float32(model)
    dtypes = []
    with torch.autocast('cpu', torch.bfloat16):
        losses = model(**batch, mode='loss')
    model.parse_losses(losses)[0].backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.neck.register_forward_hook(lambda module, args, maps: dtypes.append(maps[0].dtype))
    with torch.autocast('cpu', torch.bfloat16):
        instances = model.eval()(**batch, mode='predict')[0].pred_instances
    assert (*dtypes, instances.bboxes.dtype, instances.scores.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert (instances.bboxes != instances.bboxes.bfloat16()).any(1).float().mean() > .5  # not rounded
