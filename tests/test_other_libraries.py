"""CvT as a network of timm: the same maps and logits, trained, saved and loaded; weights of transformers."""
import re
from functools import partial
from pathlib import Path

import pytest
import timm
import timm.optim
import torch
from templates_edited import write_detector

import cvt_dense.timm  # noqa: F401
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[1] / 'docs/guides/other_libraries.md'
# Of maps and logits of about 1: equal weights at other places in memory, and the kernels of another processor, round
# otherwise, by 2.4e-6 at most (AVX2). Twice the epsilon of LayerNorm changes maps by 1.6e-5.
assert_close = partial(torch.testing.assert_close, rtol=0, atol=1e-5)


@pytest.mark.parametrize('name', ['cvt_13', 'cvt_nano'])
def test_logits_and_maps_of_timms_network_are_ours(name):
    theirs, arch = timm.create_model(name).eval(), name.replace('_', '-')
    out_type = theirs.backbone.out_type
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=arch, out_type=out_type), theirs.num_classes).eval()
    model.load_state_dict(theirs.state_dict(), strict=False)
    images = torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        assert_close(theirs(images), model(images))
        tokens, maps = theirs.forward_intermediates(images)
        assert_close(theirs.forward_head(tokens), model(images))
        wrapped = timm.create_model(name, features_only=True, out_indices=(0, 2)).eval()
        wrapped.load_state_dict({f'model.{key}': value for key, value in theirs.state_dict().items()}, strict=False)
        assert wrapped.feature_info.reduction() == [4, 16]
        for feature_map, expected in zip(wrapped(images), (maps[0], maps[2]), strict=True):
            assert_close(feature_map, expected)
        first, = theirs.forward_intermediates(images, indices=[0], stop_early=True)[1]
        theirs.prune_intermediate_layers([0])
        assert_close(first, maps[0])
        assert_close(theirs.forward_intermediates(images)[1][0], first)


@pytest.mark.parametrize('name, pool', [
    ('cvt_13', 'avg'), ('cvt_13', 'token'), ('cvt_nano', ''), ('cvt_nano', 'max'), ('cvt_nano', 'avgmax')])
def test_timms_pooling(name, pool):
    model = timm.create_model(name).eval()
    model.reset_classifier(0, pool)
    images = torch.rand(2, 3, 32, 48)
    with torch.no_grad():
        tokens = model.forward_features(images)
        inside = tokens[:, int(name == 'cvt_13'):]
        expected = {'': tokens, 'avg': inside.mean(1), 'max': inside.amax(1), 'token': tokens[:, 0],
                    'avgmax': (inside.mean(1) + inside.amax(1)) / 2}[pool]
        torch.testing.assert_close(model(images), expected)
        maps, lists = (model.forward_intermediates(images, output_fmt=layout, intermediates_only=True, norm=True)
                       for layout in ('NCHW', 'NLC'))
    assert all(map(torch.equal, [level.flatten(2).transpose(1, 2) for level in maps], lists))


def test_timm_converts_the_hubs_weights(tmp_path):
    from transformers import CvtConfig, CvtForImageClassification
    hub = CvtForImageClassification(CvtConfig(num_labels=1000))
    torch.save(hub.state_dict(), tmp_path / 'pytorch_model.bin')
    expected, file = convert(hub.state_dict(), 'cvt_dense'), str(tmp_path / 'pytorch_model.bin')
    for options in (dict(pretrained=True, pretrained_cfg_overlay=dict(file=file)), dict(checkpoint_path=file)):
        model = timm.create_model('cvt_13', **options)
        assert all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


def test_timms_tools_take_it():
    model = timm.create_model('cvt_nano', pretrained=True, num_classes=7, drop_path_rate=0.1)
    model.set_grad_checkpointing()
    groups = timm.optim.param_groups_layer_decay(model, layer_decay=0.5)
    assert len({group['lr_scale'] for group in groups}) == 11 and model.get_classifier().out_features == 7
    for name, layer in timm.models.group_parameters(model, model.group_matcher(), reverse=True).items():
        assert not name.startswith('backbone.stage') or layer == model.backbone.get_layer_depth(name, 'backbone.')[0]
    model(torch.rand(2, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.reset_classifier(0)
    assert model(torch.rand(2, 3, 64, 64)).shape == (2, 128) and 'cvt_13.ms_in1k' in timm.list_pretrained('cvt*')


def test_the_pages_examples(tmp_path, shapes, monkeypatch):
    pytest.importorskip('transformers')
    monkeypatch.chdir(tmp_path)
    for name, arch in {'mine': 'cvt-nano', 'mine13': 'cvt-13'}.items():
        write_detector(tmp_path, shapes, 'fasterrcnn_cvt13_custom', arch=arch).rename(f'{name}.py')
    trained = 0
    for block in re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL):
        own: dict = {}  # each block stands alone
        exec(compile(block, PAGE, 'exec'), own)
        if 'run' in own:
            assert own['run'].last
            trained += 1
    assert trained == 2
