"""Loading through every door that users have: init_cfg, load_from, folders, the hub; and its errors."""
import os
import pickle
import socketserver
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest
import safetensors.torch
import torch
from mmengine.hooks import EMAHook
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModule, ExponentialMovingAverage
from mmengine.runner import CheckpointLoader, load_checkpoint
from mmengine.runner.checkpoint import load_state_dict as mmengine_load_state_dict
from torch import nn

from cvt_dense.models import CvT, ImageClassifier
from cvt_dense.weights import CheckpointError, convert
from cvt_dense.weights.files import read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 2, 1), num_heads=(1, 3, 6))
DEPTHS = 4
# Of each block: 2 norms and 6 linear layers of 2 tensors, 3 projections of 6; of each stage: 4; and CLS.
BACKBONE = DEPTHS * (8 * 2 + 3 * 6) + 3 * 4 + 1


class Detector(BaseModule):
    """A backbone beside something else, as in mmdet and mmseg."""

    def __init__(self, **backbone):
        super().__init__()
        self.backbone = CvT(**{'arch': ARCH, **backbone})
        self.neck = nn.Conv2d(8, 4, 1)


def build_classifier(num_classes=5, init_cfg=None, **backbone):
    backbone = {'type': 'cvt_dense.CvT', 'arch': ARCH, 'out_type': 'cls_token', **backbone}
    return ImageClassifier(backbone, num_classes=num_classes, init_cfg=init_cfg)


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
    torch.save(microsoft, folder / 'CvT.pth')
    torch.save({f'module.{key}': value for key, value in microsoft.items()}, folder / 'parallel.pth')
    torch.save(huggingface, folder / 'pytorch_model.bin')
    for repository in ('hub', 'hub_bin'):
        (folder / repository).mkdir()
    safetensors.torch.save_file(huggingface, folder / 'hub' / 'model.safetensors')
    torch.save(huggingface, folder / 'hub_bin' / 'pytorch_model.bin')
    torch.save(dict(state_dict=weights, meta=dict(epoch=1)), folder / 'ours.pth')
    return folder


ALL_FILES = ['CvT.pth', 'parallel.pth', 'pytorch_model.bin', 'hub', 'hub_bin', 'hub/model.safetensors', 'ours.pth']


def assert_backbone(backbone, weights):
    own = backbone.state_dict()
    loaded = [key for key in own if f'backbone.{key}' in weights]
    assert len(loaded) >= BACKBONE - 1
    assert all(torch.equal(own[key], weights[f'backbone.{key}']) for key in loaded)


@pytest.mark.parametrize('file', ALL_FILES)
def test_every_format_loads_into_a_dense_backbone(files, weights, report, file):
    backbone = CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(files / file)))
    backbone.init_weights()
    assert report() == [f'CvT: {BACKBONE} tensors loaded, 6 new (norm0, norm1, norm2), 4 left over (norm, head)']
    assert_backbone(backbone, weights)
    assert (backbone.norm2.weight == 1).all()

    detector = Detector()
    load_checkpoint(detector, str(files / file))  # what load_from and init_detector do
    assert report()[1:] == [f'CvT: {BACKBONE} tensors loaded, 6 new (norm0, norm1, norm2), 2 left over (norm)']
    assert_backbone(detector.backbone, weights)


@pytest.mark.parametrize('file', ALL_FILES)
def test_every_format_loads_into_a_classifier(files, weights, report, file):
    expected = f'ImageClassifier: {BACKBONE + 4} tensors loaded, 0 new, 0 left over'
    by_init_cfg = build_classifier(init_cfg=dict(type='Pretrained', checkpoint=str(files / file)))
    by_init_cfg.init_weights()
    by_load_from = build_classifier()
    load_checkpoint(by_load_from, str(files / file))
    assert report() == [expected] * 2
    for model in (by_init_cfg, by_load_from):
        assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_a_head_of_another_size_is_new_and_reported(files, weights, report):
    expected = f'ImageClassifier: {BACKBONE + 2} tensors loaded, 2 new (head), 2 left over (head)'
    by_init_cfg = build_classifier(7, dict(type='Pretrained', checkpoint=str(files / 'CvT.pth')))
    before = by_init_cfg.head.weight.clone()
    by_init_cfg.init_weights()
    assert torch.equal(by_init_cfg.head.weight, before)
    by_load_from = build_classifier(7)
    load_checkpoint(by_load_from, str(files / 'CvT.pth'))
    assert report() == [expected] * 2
    assert_backbone(by_load_from.backbone, weights)


def test_a_head_of_21841_classes_loads(weights, tmp_path, report):
    weights = dict(weights, **{'head.weight': torch.randn(21841, 48), 'head.bias': torch.randn(21841)})
    torch.save(convert(weights, 'microsoft'), tmp_path / 'CvT-IN-22k.pth')
    model = build_classifier(21841)
    load_checkpoint(model, str(tmp_path / 'CvT-IN-22k.pth'))
    assert torch.equal(model.head.weight, weights['head.weight'])
    assert ' 0 new, 0 left over' in report()[0]


@pytest.mark.parametrize('options, expected', [
    (dict(out_type='cls_token'), f'{BACKBONE + 2} tensors loaded, 0 new, 2 left over (head)'),
    (dict(out_type='avg_featmap', with_cls_token=False),
     f'{BACKBONE + 1} tensors loaded, 0 new, 3 left over (stage2.cls_token, head)'),
    (dict(with_cls_token=False), f'{BACKBONE - 1} tensors loaded, 6 new (norm0, norm1, norm2), 5 left over '
     '(stage2.cls_token, norm, head)'),
    (dict(out_indices=(0, 1)), f'{3 * 34 + 8} tensors loaded, 4 new (norm0, norm1), '
     f'{34 + 4 + 1 + 4} left over (stage2.cls_token, stage2.patch_embed.proj, stage2.patch_embed.norm, '
     'stage2.blocks.0.norm1, …)'),
    (dict(out_indices=(2, 3)), f'{BACKBONE} tensors loaded, 4 new (norm2, norm3), 4 left over (norm, head)'),
])
def test_what_is_new_and_left_over_follows_from_the_network(files, weights, report, options, expected):
    backbone = CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(files / 'CvT.pth')), **options)
    backbone.init_weights()
    assert report() == [f'CvT: {expected}']
    own = backbone.state_dict()
    assert all(torch.equal(own[key], weights[f'backbone.{key}']) for key in own if f'backbone.{key}' in weights)


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
        init_cfg = dict(type='Pretrained', checkpoint=str(tmp_path / 'epoch_1.pth'), **choice)
        backbone = CvT(ARCH, init_cfg=init_cfg)
        backbone.init_weights()
        assert torch.equal(backbone.stage2.cls_token, weights['backbone.stage2.cls_token'] + offset)
    with pytest.raises(ValueError, match="weights='best': allowed are 'ema' and 'raw'"):
        CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'epoch_1.pth'),
                                weights='best')).init_weights()


def test_a_detectors_checkpoint_gives_its_backbone(tmp_path, report):
    detector = Detector()
    detector.backbone.norm1.weight.data.fill_(5)
    torch.save(dict(state_dict=detector.state_dict(), meta={}), tmp_path / 'detector.pth')
    backbone = CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'detector.pth')))
    backbone.init_weights()
    assert report() == [f'CvT: {BACKBONE + 6} tensors loaded, 0 new, 2 left over (neck)']
    assert (backbone.norm1.weight == 5).all()


def test_a_prefix_is_only_needed_for_unknown_formats(weights, tmp_path, report):
    foreign = {f'model.encoder.{key}': value for key, value in convert(weights, 'microsoft').items()}
    path = str(tmp_path / 'foreign.pth')
    torch.save(foreign, path)
    backbone = CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=path, prefix='model.encoder'))
    backbone.init_weights()
    assert report() == [f'CvT: {BACKBONE} tensors loaded, 6 new (norm0, norm1, norm2), 4 left over (norm, head)']
    with pytest.raises(CheckpointError, match=r"wrong prefix, CvT's tensors are under 'model.encoder.' there"):
        CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=path)).init_weights()
    with pytest.raises(CheckpointError, match=r"no tensor under prefix='bakcbone.': its names start with \['model'\]"):
        CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=path, prefix='bakcbone.')).init_weights()
    with pytest.raises(CheckpointError, match="its part under 'backbone.'.*wrong file or prefix"):
        load_checkpoint(Detector(), path)


def test_other_initialisers_still_run_before_the_checkpoint(files, weights):
    backbone = CvT(ARCH, init_cfg=[dict(type='Pretrained', checkpoint=str(files / 'CvT.pth')),
                                   dict(type='Constant', layer='LayerNorm', val=0.5)])
    backbone.init_weights()
    assert_backbone(backbone, weights)
    assert (backbone.norm0.weight == 0.5).all()


# -- the hub -----------------------------------------------------------------------------------------


@pytest.fixture
def hub_cache(files, tmp_path, monkeypatch):
    """A cache as huggingface_hub lays it out, with one repository."""
    import huggingface_hub
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_CACHE', str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', True)
    repository = tmp_path / 'models--microsoft--cvt-tiny'
    for number, name in (('a' * 40, 'model.safetensors'), ('b' * 40, 'pytorch_model.bin')):
        (repository / 'snapshots' / number).mkdir(parents=True)
        source = files / ('hub' if name.startswith('model') else 'hub_bin') / name
        (repository / 'snapshots' / number / name).write_bytes(source.read_bytes())
    (repository / 'refs').mkdir()
    (repository / 'refs' / 'main').write_text('a' * 40)
    (repository / 'refs' / 'v1').write_text('b' * 40)
    return tmp_path


@pytest.mark.parametrize('name', ['cvt-tiny', 'cvt-tiny@main', 'cvt-tiny@v1', 'cvt-tiny/pytorch_model.bin@v1'])
def test_hub_repositories_load_from_the_cache(hub_cache, weights, report, name):
    path = f'hf://microsoft/{name}'
    backbone = CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=path))
    backbone.init_weights()
    assert_backbone(backbone, weights)
    detector = Detector()
    load_checkpoint(detector, path)
    assert_backbone(detector.backbone, weights)
    assert report()[0].endswith('6 new (norm0, norm1, norm2), 4 left over (norm, head)')


def test_what_the_cache_lacks_is_a_clear_error(hub_cache):
    with pytest.raises(CheckpointError, match=r'hf://microsoft/cvt-13 is not in the cache of huggingface_hub .*'
                       'and the hub cannot be reached.*"hf download microsoft/cvt-13"'):
        CheckpointLoader.load_checkpoint('hf://microsoft/cvt-13')
    with pytest.raises(CheckpointError, match=r"'hf://cvt-13' is not of the form hf://OWNER/REPOSITORY"):
        CheckpointLoader.load_checkpoint('hf://cvt-13')


def test_a_hub_out_of_reach_is_asked_once(tmp_path):
    """Its own client asks twelve times, with pauses of 1 to 8 seconds, before it gives up."""
    asked = []

    class Refuse(socketserver.BaseRequestHandler):

        def handle(self):
            asked.append(self.request.recv(1000))  # and no answer

    with socketserver.TCPServer(('127.0.0.1', 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code = "from cvt_dense.weights.files import load_weights_file; load_weights_file('hf://microsoft/cvt-13')"
        result = subprocess.run(
            [sys.executable, '-c', code], cwd=ROOT, text=True, capture_output=True,
            env={**os.environ, 'HF_HUB_OFFLINE': '0', 'HF_HOME': str(tmp_path), 'NO_PROXY': '127.0.0.1',
                 'HF_ENDPOINT': f'http://127.0.0.1:{server.server_address[1]}'})
        server.shutdown()
    files = [request for request in asked if b'/microsoft/cvt-13/' in request]
    assert len(files) == 1 and files[0].startswith(b'HEAD '), asked
    assert 'hf://microsoft/cvt-13 is not in the cache of huggingface_hub' in result.stderr, result.stderr


# -- errors ------------------------------------------------------------------------------------------


def both_ways(path, **classifier):
    """Every error must come from init_cfg and from load_from alike."""
    errors = []
    for load in (lambda: build_classifier(init_cfg=dict(type='Pretrained', checkpoint=str(path)),
                                          **classifier).init_weights(),
                 lambda: load_checkpoint(build_classifier(**classifier), str(path))):
        with pytest.raises(CheckpointError) as info:
            load()
        errors.append(str(info.value))
    return errors


def test_a_renamed_key_is_an_error(weights, tmp_path):
    state_dict = convert(weights, 'microsoft')
    state_dict['stage1.blocks.1.attn.q.weight'] = state_dict.pop('stage1.blocks.1.attn.proj_q.weight')
    torch.save(state_dict, tmp_path / 'renamed.pth')
    for error in both_ways(tmp_path / 'renamed.pth'):
        assert 'renamed keys or an incomplete export' in error
        assert '1 tensors missing in the file: stage1.blocks.1.attn.proj_q.weight' in error
        assert '1 tensors unknown to the network: stage1.blocks.1.attn.q.weight' in error


@pytest.mark.parametrize('name', ['CvT.pth', 'hub/model.safetensors'])
def test_a_truncated_file_is_an_error(files, tmp_path, name):
    path = tmp_path / os.path.basename(name)
    path.write_bytes((files / name).read_bytes()[:20000])
    for error in both_ways(path):
        assert f'{path} (20,000 bytes' in error
        assert 'is not a complete checkpoint. The download was probably cut off' in error


def test_an_empty_file_or_a_web_page_is_an_error(tmp_path):
    (tmp_path / 'empty.pth').touch()
    assert 'empty.pth (0 bytes' in both_ways(tmp_path / 'empty.pth')[0]
    (tmp_path / 'page.pth').write_text('<!DOCTYPE html><html><body>Sign in</body></html>')
    assert 'It looks like a web page' in both_ways(tmp_path / 'page.pth')[0]
    with pytest.raises(FileNotFoundError, match='The checkpoint .*absent.pth does not exist'):
        read_checkpoint(tmp_path / 'absent.pth')
    with pytest.raises(FileNotFoundError, match='has none of model.safetensors, pytorch_model.bin'):
        read_checkpoint(tmp_path)


def test_another_arch_is_named(weights, tmp_path):
    with torch.device('meta'):
        cvt21 = CvT('cvt-21', out_type='cls_token').state_dict()
    own = CvT('cvt-13').to('meta')
    with pytest.raises(CheckpointError, match='wrong arch, the file holds cvt-21, the network is cvt-13; change arch'):
        own.check_loading(cvt21, 'CvT-21-224x224-IN-1k.pth')
    deeper = build_classifier()
    torch.save(deeper.state_dict(), tmp_path / 'deeper.pth')
    for error in both_ways(tmp_path / 'deeper.pth', arch=dict(ARCH, depths=(1, 1, 1))):
        assert ('the file holds a CvT with embed_dims (8, 24, 48) and depths (1, 2, 1), '
                'the network is a CvT with embed_dims (8, 24, 48) and depths (1, 1, 1)') in error


def test_a_detectors_checkpoint_does_not_fit_a_classifier(tmp_path):
    torch.save(dict(state_dict=Detector().state_dict(), meta={}), tmp_path / 'detector.pth')
    for error in both_ways(tmp_path / 'detector.pth'):
        assert "a detector's or segmentor's checkpoint" in error and 'it also has neck' in error


@pytest.mark.parametrize('change, reason', [
    (dict(in_channels=4), 'trained with another in_channels'),
    (dict(arch=dict(ARCH, qkv_proj_method='linear')), "other projections; set arch's qkv_proj_method"),
])
def test_other_likely_reasons(files, change, reason):
    with pytest.raises(CheckpointError, match=reason):
        CvT(**{'arch': ARCH, 'init_cfg': dict(type='Pretrained', checkpoint=str(files / 'CvT.pth')), **change}
            ).init_weights()


def test_a_checkpoint_without_a_cls_token_names_it(tmp_path):
    torch.save(CvT(ARCH, with_cls_token=False).state_dict(), tmp_path / 'no_cls.pth')
    with pytest.raises(CheckpointError, match='trained without a CLS token; set with_cls_token=False'):
        CvT(ARCH, init_cfg=dict(type='Pretrained', checkpoint=str(tmp_path / 'no_cls.pth'))).init_weights()


def test_another_networks_checkpoint_is_an_error(tmp_path):
    torch.save({'conv1.weight': torch.zeros(1), 'layer1.0.conv1.weight': torch.zeros(1)}, tmp_path / 'resnet.pth')
    for error in both_ways(tmp_path / 'resnet.pth'):
        assert 'wrong file or prefix, it has no tensor of a CvT there' in error


class Malicious:
    """Creates a file when unpickled."""

    def __init__(self, victim):
        self.victim = victim

    def __reduce__(self):
        return open, (str(self.victim), 'w')


@pytest.mark.parametrize('legacy', [False, True])
def test_a_malicious_pickle_is_refused(weights, tmp_path, legacy):
    victim = tmp_path / 'victim'
    torch.save(dict(state_dict=weights, extra=Malicious(victim)), tmp_path / 'evil.pth',
               _use_new_zipfile_serialization=not legacy)
    for error in both_ways(tmp_path / 'evil.pth'):
        assert f'{tmp_path}/evil.pth is refused' in error and '.open' in error
        assert 'set the environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1' in error
    assert not victim.exists()


def test_a_trusted_pickle_can_be_let_through(weights, tmp_path, monkeypatch):
    victim = tmp_path / 'victim'
    torch.save(dict(state_dict=weights, extra=Malicious(victim)), tmp_path / 'evil.pth')
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    load_checkpoint(build_classifier(), str(tmp_path / 'evil.pth'))
    assert victim.exists()


def test_a_plain_pickle_is_refused(tmp_path):
    (tmp_path / 'plain.pkl').write_bytes(pickle.dumps(Malicious(tmp_path / 'victim')))
    for error in both_ways(tmp_path / 'plain.pkl'):
        assert 'plain.pkl' in error
    assert not (tmp_path / 'victim').exists()


# -- what must not change ------------------------------------------------------------------------------


def test_checkpoints_of_other_networks_and_training_states_pass_through(tmp_path):
    history = HistoryBuffer()
    history.update(1.5)
    state = dict(state_dict={'conv1.weight': torch.zeros(1)}, meta=dict(epoch=3), message_hub=dict(loss=history),
                 optimizer=dict(state={0: dict(step=torch.tensor(3.))}))
    torch.save(state, tmp_path / 'epoch_3.pth')
    loaded = CheckpointLoader.load_checkpoint(str(tmp_path / 'epoch_3.pth'))
    assert list(loaded) == list(state)
    assert loaded['message_hub']['loss'].current() == 1.5 and loaded['meta'] == dict(epoch=3)
    load_checkpoint(nn.Sequential(), str(tmp_path / 'epoch_3.pth'))


def test_our_own_checkpoint_keeps_its_training_state(files):
    assert CheckpointLoader.load_checkpoint(str(files / 'ours.pth'))['meta'] == dict(epoch=1)


def test_a_classifier_of_another_backbone_loads_as_ever(tmp_path):

    class Pool(nn.Module):
        out_channels = (3, )

        def forward(self, x):
            return (x.mean(dim=(2, 3)), )

    model = ImageClassifier(Pool(), num_classes=2)
    torch.save(ImageClassifier(Pool(), num_classes=2).state_dict(), tmp_path / 'pool.pth')
    load_checkpoint(model, str(tmp_path / 'pool.pth'))
    assert torch.equal(model.head.weight, torch.load(tmp_path / 'pool.pth')['head.weight'])


def test_a_file_of_cuda_tensors_opens_on_a_machine_without_cuda(weights, tmp_path):
    torch.save(weights, tmp_path / 'cpu.pth')
    with zipfile.ZipFile(tmp_path / 'cpu.pth') as source, zipfile.ZipFile(tmp_path / 'cuda.pth', 'w') as target:
        for item in source.infolist():
            data = source.read(item)
            if item.filename.endswith('/data.pkl'):
                data = data.replace(b'X\x03\x00\x00\x00cpu', b'X\x06\x00\x00\x00cuda:0')
                assert b'cuda:0' in data
            target.writestr(item, data)
    path = str(tmp_path / 'cuda.pth')
    model = build_classifier()
    load_checkpoint(model, path, map_location=None)
    assert torch.equal(model.head.weight, weights['head.weight'])
    with pytest.raises(CheckpointError, match='cannot be read as a checkpoint.*CUDA') as info:
        read_checkpoint(path, 'cuda:0')
    assert 'cut off' not in str(info.value)


def test_strict_false_is_lenient_in_one_line(weights, caplog, report):
    detector, neck = Detector(), torch.ones(4)
    before = detector.backbone.stage0.patch_embed.proj.weight.clone()
    detector.load_state_dict({'neck.bias': neck}, strict=False)
    assert torch.equal(detector.neck.bias, neck)
    assert torch.equal(detector.backbone.stage0.patch_embed.proj.weight, before)
    own = detector.backbone.state_dict()
    detector.backbone.load_state_dict({key: own[key] + 1 for key in list(own)[:2]}, strict=False)
    lines = [r.message for r in caplog.records if 'strict=False' in r.message]
    assert len(lines) == 2 and f'CvT: 0 of {len(own)} tensors' in lines[0] and f'CvT: 2 of {len(own)}' in lines[1]
    with pytest.raises(CheckpointError):
        detector.load_state_dict({'neck.bias': neck})
    with pytest.raises(CheckpointError):  # MMEngine's loading is never asked to be strict
        mmengine_load_state_dict(detector, {'neck.bias': neck})
