"""Loading in every way that users have: init_cfg, load_from, folders, the hub; and what is refused."""
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from mmengine.hooks import EMAHook
from mmengine.model import BaseModule, ExponentialMovingAverage
from mmengine.runner import load_checkpoint
from torch import nn

from cvt_dense import inference
from cvt_dense.errors import UserError
from cvt_dense.models import CvT
from cvt_dense.pretraining import ImageClassifier
from cvt_dense.weights import CheckpointError, check_model, convert, load_weights_file, read_checkpoint, select_weights

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 1), num_heads=(1, 3, 6))
NORMS = {'norm0', 'norm1', 'norm2'}


class Detector(BaseModule):
    """A backbone beside something else, as in mmdet and mmseg."""

    def __init__(self, **backbone):
        super().__init__()
        self.backbone = CvT(**{'arch': ARCH, **backbone})
        self.neck = nn.Conv2d(8, 4, 1)


def build_classifier(num_classes=5, init_cfg=None, **backbone):
    backbone = {'type': 'cvt_dense.CvT', 'arch': ARCH, 'out_type': 'cls_token', **backbone}
    return ImageClassifier(backbone, num_classes=num_classes, init_cfg=init_cfg)


def test_weights_are_read_when_they_are_used(tmp_path):
    """A run opens its checkpoint several times: for the names of classes, for shapes and for the weights."""
    torch.save(dict(weight=torch.zeros(1000)), tmp_path / 'mapped.pth')
    content = read_checkpoint(tmp_path / 'mapped.pth')
    assert 'mapped.pth' in Path('/proc/self/maps').read_text()
    content['weight'] += 1  # which does not change the file
    assert read_checkpoint(tmp_path / 'mapped.pth')['weight'].sum() == 0


def pretrained(file, **options):
    return dict(type='Pretrained', checkpoint=str(file), **options)


@pytest.fixture(scope='module')
def weights():
    """A classifier's weights, none of them a constant."""
    torch.manual_seed(1)
    state_dict = build_classifier().state_dict()
    return {key: torch.randn_like(v) if v.is_floating_point() else v + 3 for key, v in state_dict.items()}


@pytest.fixture(scope='module')
def files(weights, tmp_path_factory):
    """The same weights as the authors, Hugging Face (file, folder) and this project store them."""
    folder = tmp_path_factory.mktemp('files')
    microsoft, huggingface = convert(weights, 'microsoft'), convert(weights, 'huggingface')
    torch.save({f'module.{key}': value for key, value in microsoft.items()}, folder / 'CvT.pth')
    torch.save(huggingface, folder / 'pytorch_model.bin')
    (folder / 'hub').mkdir()
    safetensors.torch.save_file(huggingface, folder / 'hub' / 'model.safetensors')
    torch.save(dict(state_dict=weights, meta=dict(epoch=1)), folder / 'ours.pth')
    return folder


def new_and_unused(model, file):
    """Return the modules of a model that a file lacks, and those of the file that the model lacks."""
    result = model.check_loading(select_weights(load_weights_file(str(file))), 'the file')
    return tuple({name.rpartition('.')[0] for name in names} for names in (result.new, result.unused))


def assert_backbone(backbone, weights):
    state = backbone.state_dict()
    loaded = [key for key in state if f'backbone.{key}' in weights]
    assert len(loaded) > 140 and all(torch.equal(state[key], weights[f'backbone.{key}']) for key in loaded)


@pytest.mark.parametrize('file', ['CvT.pth', 'pytorch_model.bin', 'hub', 'ours.pth'])
def test_every_format_loads_into_a_dense_backbone_and_a_classifier(files, weights, our_tool, file):
    init_cfg = pretrained(files / file)
    backbone, classifier = CvT(ARCH, init_cfg=init_cfg), build_classifier(init_cfg=init_cfg)
    for model in (backbone, classifier):
        model.init_weights()
    assert new_and_unused(backbone, files / file) == (NORMS, {'head', 'norm'})
    assert new_and_unused(classifier, files / file) == (set(), set()) and (backbone.norm2.weight == 1).all()
    detector, by_load_from, by_state_dict = Detector(), build_classifier(), build_classifier()
    for model in (detector, by_load_from):
        load_checkpoint(model, str(files / file))  # what load_from and init_detector do
    by_state_dict.load_state_dict(select_weights(read_checkpoint(files / file)))  # whatever its names
    assert_backbone(backbone, weights)
    assert_backbone(detector.backbone, weights)
    for model in (classifier, by_load_from, by_state_dict):
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_a_head_of_another_size_is_new(files, weights, our_tool):
    by_init_cfg = build_classifier(7, pretrained(files / 'CvT.pth'))
    before = by_init_cfg.head.weight.clone()
    by_init_cfg.init_weights()
    assert torch.equal(by_init_cfg.head.weight, before)
    by_load_from = build_classifier(7)
    assert new_and_unused(by_load_from, files / 'CvT.pth') == ({'head'}, {'head'})
    load_checkpoint(by_load_from, str(files / 'CvT.pth'))
    assert_backbone(by_load_from.backbone, weights)


@pytest.mark.parametrize('options, expected', [
    (dict(out_type='avg_featmap', with_cls_token=False), (set(), {'head', 'stage2'})),
    (dict(with_cls_token=False), (NORMS, {'head', 'norm', 'stage2'}))])
def test_what_is_new_and_unused_follows_from_the_network(files, weights, options, expected):
    backbone = CvT(ARCH, init_cfg=pretrained(files / 'CvT.pth'), **options)
    backbone.init_weights()
    assert new_and_unused(backbone, files / 'CvT.pth') == expected
    assert_backbone(backbone, weights)


def test_averaged_or_raw_weights_of_our_checkpoints(weights, tmp_path):
    model = build_classifier()
    averaged = ExponentialMovingAverage(model)
    averaged.module.load_state_dict({key: value + 1 for key, value in weights.items()})
    model.load_state_dict(weights)
    hook = EMAHook()
    hook.ema_model, hook.src_model = averaged, model
    checkpoint = dict(state_dict=model.state_dict())
    hook.before_save_checkpoint(None, checkpoint)  # MMEngine puts the averages into state_dict here
    torch.save(checkpoint, tmp_path / 'epoch_1.pth')
    for choice, offset in ((dict(), 1), (dict(weights='ema'), 1), (dict(weights='raw'), 0)):
        backbone = CvT(ARCH, init_cfg=pretrained(tmp_path / 'epoch_1.pth', **choice))
        backbone.init_weights()
        assert torch.equal(backbone.stage2.cls_token, weights['backbone.stage2.cls_token'] + offset)
    with pytest.raises(ValueError, match='weights='):
        CvT(ARCH, init_cfg=pretrained(tmp_path / 'epoch_1.pth', weights='best')).init_weights()


def test_a_detectors_checkpoint_gives_its_backbone(tmp_path):
    detector = Detector()
    detector.backbone.norm1.weight.data.fill_(5)
    torch.save(dict(state_dict=detector.state_dict(), meta={}), tmp_path / 'detector.pth')
    backbone = CvT(ARCH, init_cfg=pretrained(tmp_path / 'detector.pth'))
    backbone.init_weights()
    assert new_and_unused(backbone, tmp_path / 'detector.pth') == (set(), {'neck'})
    assert (backbone.norm1.weight == 5).all()
    with pytest.raises(CheckpointError, match='detector.pth'):
        build_classifier(init_cfg=pretrained(tmp_path / 'detector.pth')).init_weights()


# -- the hub -----------------------------------------------------------------------------------------


@pytest.fixture
def hub_cache(files, hub):
    hub('microsoft/cvt-tiny', main=('model.safetensors', files / 'hub/model.safetensors'),
        v1=('pytorch_model.bin', files / 'pytorch_model.bin'))


@pytest.mark.parametrize('name', ['cvt-tiny', 'cvt-tiny@v1', 'cvt-tiny/pytorch_model.bin@v1'])
def test_hub_repositories_load_from_the_cache(hub_cache, weights, our_tool, name):
    backbone, detector = CvT(ARCH, init_cfg=pretrained(f'hf://microsoft/{name}')), Detector()
    backbone.init_weights()
    load_checkpoint(detector, f'hf://microsoft/{name}')
    assert_backbone(backbone, weights)
    assert_backbone(detector.backbone, weights)


def test_what_the_cache_lacks_is_a_clear_error(hub_cache):
    with pytest.raises(CheckpointError, match='hf download microsoft/cvt-13'):
        load_weights_file('hf://microsoft/cvt-13')
    with pytest.raises(CheckpointError, match='hf://OWNER/REPOSITORY'):
        load_weights_file('hf://cvt-13')


# -- the weights in this package -----------------------------------------------------------------------


def test_packaged_weights_start_a_backbone_and_a_classifier_that_knows_its_classes(our_tool):
    backbone = CvT('cvt-nano', init_cfg=pretrained('cvt_dense://cvt-nano'))
    backbone.init_weights()
    published = load_weights_file('cvt_dense://cvt-nano')['state_dict']
    for name, value in backbone.state_dict().items():
        if name.startswith('stage'):  # the levels' norms are new
            assert torch.equal(value, published[f'backbone.{name}']), name
    classifier = build_classifier(200, arch='cvt-nano', out_type='avg_featmap')
    classes = load_checkpoint(classifier, 'cvt_dense://cvt-nano', strict=True)['meta']['dataset_meta']['classes']
    assert len(classes) == 200 and list(classes) == sorted(classes) and 'n01443537_goldfish' in classes
    with pytest.raises(CheckpointError, match='cvt-nano'):
        load_weights_file('cvt_dense://cvt-13')


def test_the_packaged_models_find_what_photographs_show():
    data = pytest.importorskip('skimage.data')
    classifier = inference.load('cvt_dense://cvt-nano', device='cpu')
    assert 'espresso' in inference.predict(classifier, data.coffee()[..., ::-1])[0][0]
    model = inference.load('cvt_dense://cvt-nano-voc', device='cpu')  # its name before
    photographs = dict(person=data.astronaut(), cat=data.chelsea(), motorcycle=data.stereo_motorcycle()[0])
    for name, photograph in photographs.items():
        assert name in inference.predict(model, photograph[..., ::-1], score_thr=0.3)['class_name']


# -- what does not fit -------------------------------------------------------------------------------


def refused(tensors, tmp_path, match, **backbone):
    """Both init_cfg and the comparison before load_from refuse a file."""
    torch.save(tensors, tmp_path / 'file.pth')
    with pytest.raises(CheckpointError, match=match):
        build_classifier(init_cfg=pretrained(tmp_path / 'file.pth'), **backbone).init_weights()
    with pytest.raises(CheckpointError, match=match):
        check_model(build_classifier(**backbone), select_weights(load_weights_file(str(tmp_path / 'file.pth'))),
                    'file.pth', strict=False)


def test_other_names_shapes_and_networks(weights, tmp_path):
    renamed = dict(convert(weights, 'microsoft'))
    renamed['stage1.blocks.1.attn.q.weight'] = renamed.pop('stage1.blocks.1.attn.proj_q.weight')
    refused(renamed, tmp_path, r'\.attn\.proj_q\.weight.*\.attn\.q\.weight')
    refused(weights, tmp_path, r'arch.*blocks\.1\.', arch=dict(ARCH, depths=(1, 1, 1)))
    refused(weights, tmp_path, 'in_channels', in_channels=4)
    refused(weights, tmp_path, 'gamma', layer_scale_init_value=1e-6)  # which would make the weights almost ineffective
    refused(weights, tmp_path, 'conv_proj_q', arch=dict(ARCH, qkv_proj_method='linear'))
    refused({'conv1.weight': torch.zeros(1), 'layer1.0.conv1.weight': torch.zeros(1)}, tmp_path, 'file.pth')
    with pytest.raises(CheckpointError, match='with_cls_token'):
        CvT(ARCH).load_strictly(CvT(ARCH, with_cls_token=False).state_dict(), 'file.pth')
    with pytest.raises(CheckpointError, match=r"prefix='model\.'"):
        CvT(ARCH).load_strictly({f'model.{name}': value for name, value in CvT(ARCH).state_dict().items()}, 'file.pth')


@pytest.mark.parametrize('change', [
    lambda value: value.index_fill(0, torch.tensor(0), torch.inf), lambda value: value.long(), lambda value: 'text'])
@pytest.mark.parametrize('name', ['backbone.stage0.patch_embed.proj.weight', 'head.bias'])
def test_tensors_that_are_no_weights(weights, tmp_path, change, name):
    refused(dict(weights, **{name: change(weights[name])}), tmp_path, name.removeprefix('backbone.'))


def test_damaged_and_missing_files(files, tmp_path):
    for name in ('CvT.pth', 'hub/model.safetensors'):
        torn = tmp_path / name.rpartition('/')[2]
        torn.write_bytes((files / name).read_bytes()[:20000])
        with pytest.raises(CheckpointError, match=torn.name):
            read_checkpoint(torn)
    for text in ('', '<html>Sign in</html>'):
        (tmp_path / 'file.pth').write_text(text)
        with pytest.raises(CheckpointError, match='file.pth'):
            read_checkpoint(tmp_path / 'file.pth')
    shutil.copy(files / 'hub/model.safetensors', tmp_path / 'A.SAFETENSORS')
    assert read_checkpoint(tmp_path / 'A.SAFETENSORS')
    with pytest.raises(CheckpointError, match='absent.pth'):
        read_checkpoint(tmp_path / 'absent.pth')
    with pytest.raises(UserError, match='model.safetensors'):  # a folder without weights
        inference.load('cvt_dense://cvt-nano', tmp_path)


@pytest.mark.parametrize('name, value, message', [
    *((name, value, f'{name.replace("_", ".")}.*{value}') for name, value in (
        ('device', 'cuda:9'), ('device', 'gpu'), ('device', 'meta'), ('device', ''), ('device', 0), ('checkpoint', ''),
        ('amp', 'fp32'), ('runtime', 'tensorrt'), ('data_root', 'nowhere'))),
    ('cfg_options', {1: 2}, 'cfg_options.*1'), ('cfg_options', {'model': 3}, 'model=3')])
def test_arguments_that_load_does_not_take(name, value, message):
    with pytest.raises(UserError, match=message):
        inference.load('cvt_dense://cvt-nano', **{name: value})


def test_a_package_in_an_archive_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr('cvt_dense.published.PACKAGED', tmp_path / 'a.zip/cvt_dense/weights/files')
    with pytest.raises(UserError, match='a.zip.*archive'):
        inference.load('cvt_dense://cvt-nano')
