"""tools/attention.py: the command on a classifier, and what it says about wrong input."""
import json
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch
from load_tool import load_tool
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from PIL import Image

from cvt_dense.analysis import attention_distance, attention_entropy, cam_layer, effective_rank, record_attention
from cvt_dense.errors import UserError
from cvt_dense.models import CvT

ROOT = Path(__file__).resolve().parents[2]
attention = load_tool('attention')


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> Path:
    """A classifier's untrained checkpoint and a photo of 90 x 70 pixels."""
    folder = tmp_path_factory.mktemp('attention')
    cfg = Config.fromfile(ROOT / 'configs' / 'cvt_nano_shapes.py')
    init_default_scope(cfg.default_scope)
    torch.manual_seed(0)
    model = MODELS.build(cfg.model)
    torch.save(dict(state_dict=model.state_dict(), meta=dict(dataset_meta=dict(classes=list('abcdefgh')))),
               folder / 'model.pth')
    pixels = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((90, 70)).save(folder / 'photo.png')
    return folder


def arguments(files: Path, **changes) -> Namespace:
    return Namespace(**{**dict(config=str(ROOT / 'configs' / 'cvt_nano_shapes.py'), checkpoint=str(files / 'model.pth'),
                               device='cpu', cfg_options=None, cam='', point=[]), **changes})


def test_picture_and_numbers(files, run_tool, tmp_path):
    """Those of the functions, for the whole photo at the config's size."""
    pytest.importorskip('pytorch_grad_cam')
    output = run_tool('tools/attention.py', 'configs/cvt_nano_shapes.py', files / 'model.pth', files / 'photo.png',
                      '--point', '80,10', '--point', '3,60', '--out-dir', tmp_path, '--cam', 'c').stdout
    assert f'photo.png -> {tmp_path}/photo.png: mean attention distance' in output
    picture = np.asarray(Image.open(tmp_path / 'photo.png').convert('RGB'))
    assert picture.shape[0] > 900 and picture.shape[1] > 1200 and len(np.unique(picture.reshape(-1, 3), axis=0)) > 1000
    found = json.loads((tmp_path / 'attention.json').read_text())['images'][str(files / 'photo.png')]
    assert found['size'] == [64, 82]
    args = arguments(files)
    model, classes = attention.build(args, attention.settings.load_config(args))
    image = np.asarray(Image.open(files / 'photo.png').resize((82, 64), Image.Resampling.BICUBIC))
    x = (torch.tensor(image).permute(2, 0, 1)[None] - model.data_preprocessor.mean) / model.data_preprocessor.std
    with torch.no_grad(), record_attention(model, queries=256) as records:
        model.backbone(x)
    assert classes == list('abcdefgh') and list(found['blocks']) == list(records)
    for name, record in records.items():
        for key, measure in (('distance_px', attention_distance), ('entropy', attention_entropy),
                             ('rank', effective_rank)):
            assert found['blocks'][name][key] == pytest.approx(measure(record).tolist(), rel=1e-3, abs=1e-3)


def test_class_activation_is_grad_cam(files):
    """Of a classifier by the formula; grad-cam finds the map's shape on odd sizes, with CLS."""
    pytest.importorskip('pytorch_grad_cam')
    args = arguments(files)
    cfg = attention.settings.load_config(args)
    model, classes = attention.build(args, cfg)
    x, seen = torch.rand(1, 3, 67, 130), []
    heat = attention.class_activation(model, x, attention.scores_of(model, cfg), 2)
    assert heat.shape == (67, 130) and heat.min() == 0 and heat.max() == pytest.approx(1, abs=1e-3)
    with cam_layer(model).register_forward_hook(lambda module, args, y: seen.append(y)):
        score = model(x)[0, 2]
    gradient, = torch.autograd.grad(score, seen)
    maps, gradient = (y[0, 1:].detach().T.unflatten(1, (5, 8)) for y in (seen[0], gradient))
    expected = (maps * gradient.mean((1, 2), keepdim=True)).sum(0).clamp(min=0)
    got = torch.nn.functional.adaptive_avg_pool2d(heat[None], (5, 8))[0]
    assert np.corrcoef(got.flatten(), expected.flatten())[0, 1] > .9
    assert not cam_layer(model)._forward_hooks
    scores = model(x)
    assert attention.find_class('', classes, scores) == int(scores.argmax())
    assert attention.find_class('h', classes, scores) == 7 == attention.find_class('7', [], scores)
    with pytest.raises(UserError, match='--cam x: no such class. Give a, b, c, d, e, f, g, h, or a number from 0 to 7'):
        attention.find_class('x', classes, scores)
    cfg.model.type = 'MaskRCNN'
    with pytest.raises(UserError, match="model.type='MaskRCNN' has those of boxes. Leave it out"):
        attention.scores_of(CvT(dict(embed_dims=[8], depths=[1], num_heads=[1])), cfg)


def test_mistakes(files, tmp_path, monkeypatch, capsys):
    photo = files / 'photo.png'
    monkeypatch.setattr(sys, 'argv', ['attention.py', 'no.py', 'no.pth', str(photo), '--point', '90,10'])
    with pytest.raises(SystemExit) as end:  # before config and checkpoint are read
        attention.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == (f'error: --point 90,10 is outside of {photo}, which is 90 pixels wide and 70 '
                                       'high: give 0,0 to 89,69.\n')
    (tmp_path / 'broken.jpg').write_bytes(b'no image')
    with pytest.raises(UserError, match='broken.jpg cannot be read'):
        attention.check_points([], [tmp_path / 'broken.jpg'])
    with pytest.raises(attention.argparse.ArgumentTypeError, match='3: give X,Y in pixels'):
        attention.parse_point('3')
    args = arguments(files, cfg_options={'model.backbone.arch.embed_dims': [16, 32, 64]})
    with pytest.raises((UserError, ValueError), match='model.pth does not fit the network. Likely reason: wrong arch'):
        attention.build(args, attention.settings.load_config(args))
    cfg = Config.fromfile(ROOT / 'configs' / 'maskrcnn_cvt13_coco.py')
    assert attention.short_side_of(cfg) == 800
    assert attention.short_side_of(Config.fromfile(ROOT / 'configs' / 'upernet_cvt_nano_shapes.py')) is None
    assert attention.short_side_of(Config.fromfile(ROOT / 'configs' / 'cvt13_in1k.py')) == 224
