"""TimmBackbone: maps as heads want them, timm's layers and weights, one paragraph for what does not work."""
import pytest
import timm
import torch
from templates_edited import by_name, layer_decay
from torch import nn

from cvt_dense.deploy.networks import make_exportable
from cvt_dense.errors import CheckpointError
from cvt_dense.models import TimmBackbone
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import check_model, select_weights

SWIN = dict(model_name='swin_tiny_patch4_window7_224', embed_dim=8, depths=(2, 1, 1, 2), num_heads=(1, 1, 2, 2))
VIT = dict(model_name='deit_tiny_patch16_224', embed_dim=24, depth=3)
DISTILLED = dict(VIT, model_name='deit_tiny_distilled_patch16_224')
CONVNEXT = dict(model_name='convnext_atto', dims=(8, 8, 16, 16), depths=(1, 1, 1, 1))
RESNET = dict(model_name='test_resnet', out_indices=(1, 2, 3, 4))


@pytest.mark.parametrize('network, strides', [
    (dict(SWIN, level_norms=True, in_channels=4), (4, 8, 16, 32)), (RESNET, (4, 8, 16, 32)),
    (dict(VIT, out_indices=(1, -1)), (16, 16)), (CONVNEXT, (4, 8, 16, 32)),
    (dict(DISTILLED, out_indices=(1, -1)), (16, 16)),
    (dict(model_name='pvt_v2_b0', embed_dims=(8, 8, 20, 16), depths=(1, 1, 1, 1)), (4, 8, 16, 32))],
    ids=lambda x: str(x)[:70])
def test_maps_of_odd_sizes_have_the_stated_channels_and_strides(network, strides):
    """NCHW, contiguous, of images of odd sizes; every parameter gets a gradient; checkpoints load strictly."""
    model = TimmBackbone(**network)
    assert model.out_strides == strides
    outs = model(torch.rand(2, network.get('in_channels', 3), 79, 113))
    assert isinstance(outs, tuple) and tuple(out.shape[1] for out in outs) == model.out_channels
    for out, stride in zip(outs, strides):
        assert out.is_contiguous()
        assert all(abs(side - size / stride) < 1 for side, size in zip(out.shape[2:], (79, 113)))
    sum(out.square().mean() for out in outs).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    norms = [m for m in TimmBackbone(**network, norm_eval=True).train().modules() if isinstance(m, nn.BatchNorm2d)]
    assert not any(m.training for m in norms) and bool(norms) == (network is RESNET)


@pytest.mark.parametrize('network', [SWIN, VIT, dict(model_name='test_efficientnet')], ids=lambda x: x['model_name'])
def test_classifier(network):
    """Its logits are timm's own with the same weights, also folded for export; it trains."""
    model = ImageClassifier(dict(type='cvt_dense.TimmBackbone', out_type='pooled', **network), num_classes=5)
    other = timm.create_model(**network, num_classes=5).eval()
    other.load_state_dict({
        **{name.removeprefix('backbone.network.'): value for name, value in model.state_dict().items()
           if name.startswith('backbone')},
        **{f'{other.pretrained_cfg["classifier"]}.{name}': value for name, value in model.head.state_dict().items()}})
    with torch.no_grad():
        x = torch.rand(1, 3, 224, 224)
        torch.testing.assert_close(model.eval()(x), other(x), rtol=0, atol=1e-5)
        torch.testing.assert_close(make_exportable(model)(x), other(x), rtol=0, atol=1e-5)
    model.train()(torch.rand(2, 3, 64, 96), torch.tensor([1, 2]), mode='loss')['loss'].backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


# -- layers ------------------------------------------------------------------------------------------


def test_layer_decay_has_timms_groups():
    model = ImageClassifier(dict(type='cvt_dense.TimmBackbone', out_type='pooled', **VIT), num_classes=3)
    values = by_name(model, layer_decay(model, 1., 0.5))
    expected = {'patch_embed.proj.weight': (1 / 16, 0.05), 'pos_embed': (1 / 16, 0.), 'cls_token': (1 / 16, 0.),
                'blocks.0.attn.qkv.weight': (1 / 8, 0.05), 'blocks.2.mlp.fc1.weight': (1 / 2, 0.05),
                'blocks.2.mlp.fc1.bias': (1 / 2, 0.)}  # stem, three blocks, the rest
    assert {name: values[f'backbone.network.{name}'] for name in expected} == expected
    assert values['head.weight'] == (1., 0.05) and values['head.bias'] == (1., 0.)


# -- weights -----------------------------------------------------------------------------------------


def pretrained(file) -> dict:
    return dict(init_cfg=dict(type='Pretrained', checkpoint=str(file)))


@pytest.mark.parametrize('network', [SWIN, VIT, RESNET], ids=lambda x: x['model_name'])
def test_weights_from_a_file(network, tmp_path):
    """Timm's own file of a classifier with a head, and this project's, of whatever classes; not of fewer blocks."""
    bare = {key: value for key, value in network.items() if key != 'out_indices'}
    torch.save(timm.create_model(**bare, num_classes=7).state_dict(), tmp_path / 'timm.pth')
    ours = ImageClassifier(dict(type='cvt_dense.TimmBackbone', out_type='pooled', **bare), num_classes=3)
    torch.save(dict(state_dict=ours.state_dict(), meta={}), tmp_path / 'ours.pth')
    for file, start in (('timm.pth', ''), ('ours.pth', 'backbone.network.')):
        model = TimmBackbone(**network, **pretrained(tmp_path / file))
        model.check_init_weights()
        model.init_weights()
        tensors = torch.load(tmp_path / file)
        tensors = {name.removeprefix(start).replace('.', '_'): value
                   for name, value in tensors.get('state_dict', tensors).items()}
        state = model.network.state_dict()
        assert state and all(torch.equal(value, tensors[name.removeprefix('model.').replace('.', '_')])
                             for name, value in state.items())
        if network is VIT:
            with pytest.raises(CheckpointError, match=rf'{file}.*blocks\.3'):
                TimmBackbone(**dict(VIT, depth=4), **pretrained(tmp_path / file)).check_init_weights()
    check_model(ours, select_weights(torch.load(tmp_path / 'ours.pth')), 'ours.pth', strict=True)


def test_norms_of_levels_come_from_a_file_that_has_them(tmp_path):
    state = TimmBackbone(**CONVNEXT, level_norms=True).state_dict().items()
    torch.save({f'backbone.{name}': torch.full_like(value, 3.) for name, value in state}, tmp_path / 'detector.pth')
    torch.save(timm.create_model(**CONVNEXT).state_dict(), tmp_path / 'timm.pth')
    for file, norms in (('detector.pth', {3.}), ('timm.pth', {0., 1.})):
        model = TimmBackbone(**CONVNEXT, level_norms=True, **pretrained(tmp_path / file))
        model.init_weights()
        assert {x for i in range(4) for p in getattr(model, f'norm{i}').parameters() for x in p.tolist()} == norms
