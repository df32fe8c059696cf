"""tools/attention.py on classifiers, and wrong input."""
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import ROOT, load_tool, run_tool
from mmengine.config import Config
from mmengine.registry import MODELS
from PIL import Image

from cvt_dense.errors import UserError
from cvt_dense.report.attention import attention_distance, record_attention
from cvt_dense.report.cam import cam_layer

CONFIG = ROOT / 'configs' / 'cvt_nano_shapes.py'
LINEAR = dict(type='cvt_dense.LinearAttention')
ROPE = dict(rel_pos_cfg=dict(type='cvt_dense.RotaryPositions'))
attention = load_tool('attention')


def save_model(folder: Path, **backbone) -> tuple[Path, Path]:
    """Write the config of a classifier and its untrained checkpoint."""
    config, checkpoint = folder / 'config.py', folder / 'model.pth'
    arguments = ', '.join(f'{key}={value!r}' for key, value in backbone.items())
    config.write_text(f'_base_ = {str(CONFIG)!r}\nmodel = dict(backbone=dict({arguments}))\n')
    torch.manual_seed(0)
    model = MODELS.build(Config.fromfile(config).model)
    meta = dict(dataset_meta=dict(classes=list('abcdefgh')))
    torch.save(dict(state_dict=model.state_dict(), meta=meta), checkpoint)
    return config, checkpoint


@pytest.fixture(scope='module')
def photo(tmp_path_factory) -> Path:
    """90 x 70 pixels."""
    path = tmp_path_factory.mktemp('photo') / 'photo.png'
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((90, 70)).save(path)
    return path


run = partial(run_tool, 'attention')


def test_picture_and_numbers(photo, tmp_path):
    """The numbers equal those of the functions, for the whole photo at the config's size; CLS has a panel."""
    pytest.importorskip('pytorch_grad_cam')
    command = [*save_model(tmp_path, with_cls_token=True), photo, '--point', '80,10', '--point', '3,60',
               '--out-dir', tmp_path / 'out', '--cam', 'c']
    assert f'photo.png -> {tmp_path}/out/photo.png' in run(*command)
    picture = np.asarray(Image.open(tmp_path / 'out/photo.png').convert('RGB'))
    assert picture.shape[0] > 900 and picture.shape[1] > 900 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 1000
    found = json.loads((tmp_path / 'out/attention.json').read_text())['distance_px'][str(photo)]
    model = MODELS.build(Config.fromfile(command[0]).model).eval()
    model.load_state_dict(torch.load(command[1])['state_dict'])
    image = np.asarray(Image.open(photo).resize((82, 64), Image.Resampling.BICUBIC))
    x = (torch.tensor(image).permute(2, 0, 1)[None] - model.data_preprocessor.mean) / model.data_preprocessor.std
    with torch.no_grad(), record_attention(model, queries=[256]) as records:
        model.backbone(x)
    assert list(found) == list(records)
    for name, record in records.items():
        assert found[name] == pytest.approx(attention_distance(record).tolist(), rel=1e-3, abs=1e-3)
    assert '--force' in run(*command, rc=2)  # nothing is overwritten


@pytest.mark.parametrize('attn_cfg, blocks', [
    ([LINEAR, ROPE, None], ['stage2']), (LINEAR, [])], ids=str)
def test_blocks_that_cannot_be_recorded_are_left_out(photo, tmp_path, attn_cfg, blocks):
    pytest.importorskip('pytorch_grad_cam')
    command = [*save_model(tmp_path, attn_cfg=attn_cfg), photo, '--point', '80,10', '--cam',
               '--out-dir', tmp_path / 'out']
    if not blocks:
        assert 'attn_cfg' in run(*command, rc=2)
        return
    assert f'recorded: {blocks[0]}.blocks.0' in run(*command)
    found = json.loads((tmp_path / 'out/attention.json').read_text())['distance_px'][str(photo)]
    assert sorted({name.split('.')[0] for name in found}) == blocks


def test_class_activation_is_grad_cam(tmp_path):
    """Of a classifier by the formula; grad-cam finds the map's shape on odd sizes, with CLS."""
    pytest.importorskip('pytorch_grad_cam')
    cfg = Config.fromfile(CONFIG)
    cfg.model.backbone.arch.cls_token = (False, False, True)
    model = MODELS.build(cfg.model).eval()
    x, outputs = torch.rand(1, 3, 67, 130), []
    heat = attention.class_activation(model, x, attention.scores_of(model), 2)
    assert heat.shape == (67, 130) and heat.min() == 0 and heat.max() == pytest.approx(1, abs=1e-3)
    with cam_layer(model).register_forward_hook(lambda module, args, y: outputs.append(y)):
        score = model(x)[0, 2]
    gradient, = torch.autograd.grad(score, outputs)
    maps, gradient = (y[0, 1:].detach().T.unflatten(1, (5, 8)) for y in (outputs[0], gradient))
    expected = (maps * gradient.mean((1, 2), keepdim=True)).sum(0).clamp(min=0)
    got = torch.nn.functional.adaptive_avg_pool2d(heat[None], (5, 8))[0]
    assert np.corrcoef(got.flatten(), expected.flatten())[0, 1] > .9
    assert not cam_layer(model)._forward_hooks
    assert attention.find_class('h', list('abcdefgh'), model(x)) == 7
    with pytest.raises(UserError, match='--cam x'):
        attention.find_class('x', list('abcdefgh'), model(x))


def test_a_point_outside_is_named_before_anything_is_read(photo):
    assert '--point' in run('no.py', 'no.pth', photo, '--point', '90,10', rc=2)
