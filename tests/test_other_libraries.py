"""CvT as a network of timm and of transformers: the same maps and logits, trained, saved and loaded."""
import re
from functools import partial
from pathlib import Path

import pytest
import timm
import timm.optim
import torch
from random_weights import randomise
from templates_edited import write_detector

import cvt_dense.timm  # noqa: F401
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import convert

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[1] / 'docs/guides/other_libraries.md'
PACKAGED = 'cvt_dense://cvt-nano'
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


def test_with_gradients_each_size_is_compiled_by_itself(monkeypatch):
    """Also with dynamic=True, since Inductor cannot compile the backward pass of sides that vary."""
    monkeypatch.setitem(CvT.arch_zoo, 'cvt-nano', dict(embed_dims=(8, 16), depths=(1, 1), num_heads=(1, 2),
                                                       cls_token=False))
    graphs = []
    model = torch.compile(timm.create_model('cvt_nano'), dynamic=True,
                          backend=lambda graph, inputs: graphs.append(graph) or graph.forward)
    for batch, side in (2, 64), (3, 64), (2, 80):
        model(torch.rand(batch, 3, side, 96))
    assert len(graphs) == 2
    model.eval()
    with torch.no_grad():
        for side in 64, 80:
            model(torch.rand(2, 3, side, 96))
    assert len(graphs) == 3


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
        write_detector(tmp_path, shapes, 'fasterrcnn_cvt13_custom', arch=arch, max_iters=1).rename(f'{name}.py')
    names: dict = {}
    for block in re.findall(r'```python\n(.*?)```', PAGE.read_text(), re.DOTALL):
        own: dict = {}  # each block stands alone
        exec(compile(block.replace('224, 224', '64, 64'), PAGE, 'exec'), own)
        names |= own
        if 'run' in own:
            assert own['run'].last
    images = names['images']
    model, again = (names[name].eval() for name in ('model', 'again'))
    assert names['loss'] > 0
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())
    with torch.no_grad():
        assert_close(model(images).logits, again(images).logits)


def test_maps_of_transformers(tmp_path):
    transformers = pytest.importorskip('transformers')
    from cvt_dense.hf import CvtBackbone, CvtBackboneConfig
    config = CvtBackboneConfig(arch='cvt-nano', out_features=['stage2', 'stage3'])
    backbone = transformers.AutoBackbone.from_config(config).eval().load(PACKAGED)
    network, images = CvT('cvt-nano', out_indices=(1, 2)).eval(), torch.rand(2, 3, 96, 128)
    network.load_state_dict(backbone.cvt.state_dict())
    backbone.save_pretrained(tmp_path / 'backbone')
    saved = CvtBackbone.from_pretrained(tmp_path / 'backbone').eval()
    with torch.no_grad():
        maps = network(images)
        assert backbone.channels == [feature_map.shape[1] for feature_map in maps] == [64, 128]
        for model in (backbone, saved):
            for feature_map, expected in zip(model(images).feature_maps, maps, strict=True):
                assert_close(feature_map, expected)
        backbone.config.output_hidden_states = True
        assert len(backbone(images).hidden_states) == 3
        assert not backbone(images, output_hidden_states=False).hidden_states
        with pytest.raises(ValueError, match='output_attentions'):
            backbone(images, output_attentions=True)
    last = transformers.AutoBackbone.from_config(CvtBackboneConfig(arch='cvt-nano', out_indices=[-1]))
    assert [feature_map.shape[1] for feature_map in last(images).feature_maps] == [128]


def _pollute():
    """Leave numbers in the memory that comes next, as a busy process does."""
    blocks = [torch.full((size, ), 3e37) for size in (1, 32, 64, 128, 1568, 4704, 16384) for _ in range(200)]
    del blocks


@pytest.mark.parametrize('lacking, whole', [
    ('running_', True), ('.bias', False), ('cls_token', True), ('cvt', True)])
def test_what_a_folder_lacks_is_initialised_as_in_a_new_network(tmp_path, lacking, whole):
    """A folder of the backbone, or of a whole model of transformers, that lacks a kind of layer or of buffer."""
    transformers = pytest.importorskip('transformers')
    from safetensors.torch import load_file, save_file

    from cvt_dense.hf import CvtBackbone, CvtBackboneConfig
    arch, maps = ('cvt-13', 'cvt-nano')[lacking != 'cls_token'], ['stage1', 'stage2', 'stage3']
    config = CvtBackboneConfig(arch=arch, out_features=maps)
    kind = transformers.UperNetForSemanticSegmentation if whole else CvtBackbone
    model = kind(transformers.UperNetConfig(backbone_config=config, hidden_size=8, auxiliary_in_channels=192 if
                                            arch == 'cvt-13' else 64) if whole else config)
    randomise(model).save_pretrained(tmp_path)
    saved = load_file(tmp_path / 'model.safetensors')
    kept = {name: value for name, value in saved.items() if lacking not in name or 'cvt.' not in name}
    save_file(kept, tmp_path / 'model.safetensors', dict(format='pt'))
    _pollute()
    opened = kind.from_pretrained(tmp_path).state_dict()
    assert len(kept) < len(saved) and all(torch.equal(opened[name], value) for name, value in kept.items())
    new = CvT(arch).state_dict()
    for name in set(saved) - set(kept):
        expected, value = new[name.rpartition('cvt.')[2]].float(), opened[name].float()
        if expected.unique().numel() == 1:
            assert torch.equal(value, expected), name
        else:
            assert 0.5 < value.std() / expected.std() < 2 and 0.5 < value.abs().max() / expected.abs().max() < 2, name


def test_a_folder_for_other_channels_and_maps(tmp_path):
    pytest.importorskip('transformers')
    from cvt_dense.hf import CvtBackbone, CvtBackboneConfig
    CvtBackbone(CvtBackboneConfig(arch='cvt-nano')).save_pretrained(tmp_path)
    _pollute()
    model = CvtBackbone.from_pretrained(tmp_path, num_channels=1, ignore_mismatched_sizes=True, out_indices=[0, 2])
    assert 0.05 < model.cvt.stage0.patch_embed.proj.weight.abs().max() <= 49**-0.5
    assert model.cvt.norm0.weight.eq(1).all()
