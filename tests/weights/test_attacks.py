"""A file that would run code is refused by every way in, and nothing runs."""
import http.server
import threading
from argparse import Namespace
from functools import partial

import huggingface_hub
import pytest
import torch
from mmengine.config import Config
from mmengine.fileio import LocalBackend
from mmengine.fileio.backends.registry_utils import backends
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, load_checkpoint
from mmengine.runner import checkpoint as mmengine_checkpoint
from tiny_training import write_config
from torch import nn
from weights.attacks import ATTACKS, builtin_call, chain_of_getattr, save

from cvt_dense.engine.runner import CvTRunner
from cvt_dense.launch.check_weights import check_checkpoint
from cvt_dense.models import CvT, ImageClassifier
from cvt_dense.weights import CheckpointError
from cvt_dense.weights.files import read_checkpoint

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
MODEL = dict(type='cvt_dense.ImageClassifier', num_classes=2,
             backbone=dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'))


def classifier(**options):
    return ImageClassifier(**{key: value for key, value in MODEL.items() if key != 'type'}, **options)


@pytest.fixture(scope='module')
def good():
    return classifier().state_dict()


class Bucket(LocalBackend):
    """s3://FILE in a folder."""

    def get_local_path(self, filepath):
        return super().get_local_path(filepath.removeprefix('s3:/'))


@pytest.fixture
def address(tmp_path, monkeypatch):
    """Puts a file where each kind of address finds it, and returns the addresses."""
    server = http.server.ThreadingHTTPServer(
        ('127.0.0.1', 0), partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'torch'))
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_OFFLINE', True)
    monkeypatch.setitem(backends, 'petrel', Bucket)

    def publish(path):
        repository = tmp_path / 'hub' / 'models--someone--cvt'
        (repository / 'snapshots' / ('a' * 40)).mkdir(parents=True)
        (repository / 'snapshots' / ('a' * 40) / 'pytorch_model.bin').write_bytes(path.read_bytes())
        (repository / 'refs').mkdir()
        (repository / 'refs' / 'main').write_text('a' * 40)
        return [str(path), f'http://127.0.0.1:{server.server_port}/{path.name}', 'hf://someone/cvt', f's3:/{path}']

    yield publish
    server.shutdown()
    server.server_close()


def ways_in(source, tmp_path):
    """Each way by which an address gets into a model of ours."""
    pretrained = dict(type='Pretrained', checkpoint=source)
    cfg = Config(dict(model=MODEL))
    runner = CvTRunner(MODEL, str(tmp_path / 'work'), experiment_name=f'attack{abs(hash(source))}')
    yield 'load_checkpoint', partial(load_checkpoint, classifier(), source)
    yield 'load_checkpoint into a detector', partial(load_checkpoint, nn.ModuleDict(dict(backbone=CvT(ARCH))), source)
    yield 'init_cfg of a classifier', classifier(init_cfg=pretrained).init_weights
    yield 'init_cfg of a backbone', CvT(ARCH, init_cfg=pretrained).init_weights
    yield 'load_from', partial(runner.load_checkpoint, source)
    yield 'resume', partial(runner.resume, source)
    yield 'tools before a run', partial(check_checkpoint, cfg, source, strict=False)


@pytest.mark.parametrize('attack', ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused_by_every_way_in(good, tmp_path, address, attack):
    path, marker = tmp_path / 'evil.pth', tmp_path / 'PWNED'
    attack(good, path, marker)
    tried = 0
    for source in address(path):
        for name, load in ways_in(source, tmp_path):
            with pytest.raises(Exception) as info:
                load()
            assert info.type.__name__ in ('CheckpointError', 'UserError'), (name, source, info.getrepr())
            tried += 1
    with pytest.raises(CheckpointError):
        read_checkpoint(path)
    assert tried == 28 and not marker.exists()


def test_the_same_ways_let_a_good_file_in(good, tmp_path, address):
    torch.save(dict(state_dict=good, meta=dict(epoch=1)), tmp_path / 'good.pth')
    for source in address(tmp_path / 'good.pth'):
        for name, load in ways_in(source, tmp_path):
            if name != 'resume':  # needs a whole run
                load()


@pytest.mark.parametrize('attack', [builtin_call, chain_of_getattr], ids=lambda attack: attack.__name__)
def test_a_file_with_cvts_names_is_refused_without_a_model_too(good, tmp_path, address, attack):
    attack(good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    for source in address(tmp_path / 'evil.pth'):
        with pytest.raises(CheckpointError, match='is refused'):
            CheckpointLoader.load_checkpoint(source)
    assert not (tmp_path / 'PWNED').exists()


def test_other_projects_collections_are_not_opened_for_a_cvt():
    for name in ('torchvision://resnet50', 'open-mmlab://resnet50', 'mmcls://resnet50', 'modelzoo://resnet50'):
        with pytest.raises(CheckpointError, match='that collection has no CvT'):
            load_checkpoint(classifier(), name)


def test_what_others_allowed_does_not_open_getattr(good, tmp_path):
    chain_of_getattr(good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    allowed = [getattr, (getattr, 'builtins.getattr'), Namespace]
    with torch.serialization.safe_globals(allowed):
        with pytest.raises(CheckpointError, match='is refused'):
            read_checkpoint(tmp_path / 'evil.pth')
        save(good, Namespace(lr=1), tmp_path / 'args.pth')
        assert read_checkpoint(tmp_path / 'args.pth')['extra'].lr == 1
        assert set(torch.serialization.get_safe_globals()) >= set(allowed)
    assert not (tmp_path / 'PWNED').exists()


def test_a_file_cannot_change_the_statistics_of_the_process(good, tmp_path):
    history = HistoryBuffer()
    history.update(2.)
    history.__dict__['statistics_methods'] = None
    class_table = dict(HistoryBuffer._statistics_methods)

    class Poisoned:
        def __reduce__(self):
            state = dict(history.__dict__, statistics_methods=dict(mean=torch.Size))
            return HistoryBuffer.__new__, (HistoryBuffer, ), state

    torch.save(dict(state_dict=good, extra=history), tmp_path / 'good.pth')
    read = read_checkpoint(tmp_path / 'good.pth')['extra']
    assert type(read) is HistoryBuffer and read.statistics('mean') == 2
    with pytest.raises(CheckpointError):
        torch.save(dict(state_dict=good, extra=Poisoned()), tmp_path / 'poisoned.pth')
        read_checkpoint(tmp_path / 'poisoned.pth')
    assert HistoryBuffer._statistics_methods == class_table


def test_resuming_does_not_run_the_config_in_a_checkpoint(good, tmp_path):
    marker = tmp_path / 'PWNED'
    text = f'import pathlib\npathlib.Path({str(marker)!r}).touch()'
    torch.save(dict(state_dict=good, meta=dict(config=text, epoch=1, iter=1)), tmp_path / 'evil.pth')
    runner = CvTRunner(MODEL, str(tmp_path / 'work'), experiment_name='config')
    loaded = runner.load_checkpoint(str(tmp_path / 'evil.pth'))
    assert loaded['meta'] == dict(epoch=1, iter=1)
    with pytest.raises(Exception):  # without data there is nothing to resume, after the text would have been run
        runner.resume(str(tmp_path / 'evil.pth'))
    assert not marker.exists()


def test_the_tools_refuse_it(good, tmp_path, run_tool):
    config, evil, marker = write_config(tmp_path), tmp_path / 'evil.pth', tmp_path / 'PWNED'
    chain_of_getattr(good, evil, marker)
    image = next((tmp_path / 'data').rglob('*.png'))
    work = tmp_path / 'work'
    work.mkdir()
    (work / 'epoch_1.pth').write_bytes(evil.read_bytes())
    for args in (('tools/train.py', config, '--work-dir', work, '--resume'),
                 ('tools/test.py', config, evil, '--work-dir', work),
                 ('tools/predict.py', config, evil, image, '--out-dir', tmp_path / 'out'),
                 ('tools/convert_checkpoint.py', evil, tmp_path / 'out.pth', '--to', 'microsoft')):
        assert 'is refused' in run_tool(*args, rc=2).stdout, args
    assert not marker.exists()


# -- other people's files ------------------------------------------------------------------------------


def outcome(load, *args):
    try:
        return str(load(*args))
    except Exception as e:
        return f'{type(e).__name__}: {e}'


def test_other_files_go_mmengines_own_way(tmp_path, address):
    path = tmp_path / 'foreign.pth'
    torch.save(dict(state_dict={'weight': torch.zeros(1, 1), 'bias': torch.zeros(1)}, args=Namespace(lr=1)), path)
    for source in address(path)[:2]:
        own = getattr(mmengine_checkpoint, 'load_from_http' if '://' in source else 'load_from_local')
        expected = outcome(own, source, 'cpu')
        assert ('Namespace' in expected) and outcome(CheckpointLoader.load_checkpoint, source, 'cpu') == expected
        assert outcome(load_checkpoint, nn.Linear(1, 1), source, 'cpu') == expected
        with pytest.raises(CheckpointError, match=r'opening it would run argparse.Namespace'):
            load_checkpoint(classifier(), source)
    missing = outcome(mmengine_checkpoint.load_from_local, 'gone.pth', 'cpu')
    assert outcome(CheckpointLoader.load_checkpoint, 'gone.pth', 'cpu') == missing


def test_another_model_gets_cvts_file_with_the_names_it_has(tmp_path):
    path = tmp_path / 'theirs.pth'
    torch.save({'stage0.blocks.0.weight': torch.ones(1, 1), 'stage0.blocks.0.bias': torch.ones(1)}, path)
    theirs = nn.ModuleDict(dict(stage0=nn.ModuleDict(dict(blocks=nn.ModuleList([nn.Linear(1, 1)])))))
    load_checkpoint(theirs, str(path))
    assert theirs['stage0']['blocks'][0].weight == 1


def test_an_inferencer_that_reads_before_it_builds_is_known():
    from mmengine.infer import BaseInferencer
    seen = {}

    class Reads(BaseInferencer):
        def __init__(self):
            pass
        postprocess = preprocess = visualize = _init_pipeline = __init__

    def spy(filename, map_location=None):
        from cvt_dense.weights.mmengine_loaders import _loads_ours
        seen[filename] = _loads_ours()
        raise FileNotFoundError

    CheckpointLoader.register_scheme('spy://', spy, force=True)
    for source, model in (('spy://ours', MODEL), ('spy://other', dict(type='mmdet.RetinaNet'))):
        with pytest.raises(FileNotFoundError):
            Reads()._init_model(Config(dict(model=model)), source)
    assert seen == {'spy://ours': True, 'spy://other': None}
    del CheckpointLoader._schemes['spy://']
