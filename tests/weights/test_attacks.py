"""A file that would run code is refused wherever that is promised, and nothing runs."""
import http.server
import inspect
import threading
from functools import partial

import huggingface_hub
import pytest
import torch
from load_tool import ROOT, run_tool
from mmengine.fileio import LocalBackend
from mmengine.fileio.backends.registry_utils import backends
from mmengine.logging import HistoryBuffer
from mmengine.model import BaseModule
from mmengine.runner import CheckpointLoader, Runner, load_checkpoint
from tiny_training import write_config
from torch import nn
from weights.attacks import ATTACKS, builtin_call, chain_of_getattr

import cvt_dense.models  # noqa: F401  (registers the types)
from cvt_dense.registry import MODELS
from cvt_dense.weights import CheckpointError, read_checkpoint, register_safe_loading

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
BACKBONE = dict(type='cvt_dense.CvT', arch=ARCH)
CLASSIFIER = dict(type='cvt_dense.ImageClassifier', num_classes=2, backbone=dict(BACKBONE, out_type='cls_token'))
# The arguments of each registered type that loads weights from a file.
ARGUMENTS = {
    'CvT': dict(arch=ARCH),
    'ImageClassifier': CLASSIFIER,
    'MaskedImageModel': dict(backbone=BACKBONE),
    'TimmBackbone': dict(model_name='resnet10t'),
}


@pytest.fixture(scope='module')
def good():
    return MODELS.build(CLASSIFIER).state_dict()


@pytest.mark.parametrize('attack', ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused(good, tmp_path, attack):
    path, marker = tmp_path / 'evil.pth', tmp_path / 'PWNED'
    attack(good, path, marker)
    with pytest.raises(CheckpointError, match='evil.pth'):
        read_checkpoint(path)
    assert not marker.exists()


# -- every way in -----------------------------------------------------------------------------------------------


class Bucket(LocalBackend):
    """s3://FILE in a folder."""

    def get_local_path(self, filepath):
        return super().get_local_path(filepath.removeprefix('s3:/'))


@pytest.fixture
def urls(tmp_path, monkeypatch):
    """Put a file where each kind of URL finds it, and return the URLs."""
    server = http.server.ThreadingHTTPServer(
        ('127.0.0.1', 0), partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'torch'))
    monkeypatch.setattr(huggingface_hub.constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
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


def test_every_url_in_our_tools(good, tmp_path, urls, our_tool):
    chain_of_getattr(good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    torch.save(good, tmp_path / 'good.pth')
    for source in urls(tmp_path / 'evil.pth'):
        with pytest.raises(CheckpointError, match='is refused'):
            load_checkpoint(nn.Linear(1, 1), source)  # anybody's model
    for file in (tmp_path / 'hub').rglob('*.bin'):
        file.write_bytes((tmp_path / 'good.pth').read_bytes())
    for source in (tmp_path / 'good.pth', 'hf://someone/cvt', f's3:/{tmp_path}/good.pth'):
        assert set(CheckpointLoader.load_checkpoint(str(source))['state_dict']) == set(good)


def loading_types() -> list[str]:
    """Names of the registered types with an ``init_cfg``, and of the teachers."""

    def loads(name, kind):
        return 'Teacher' in name or isinstance(kind, type) and issubclass(kind, BaseModule) and (
            'init_cfg' in inspect.signature(kind).parameters)

    return sorted(name for name, kind in MODELS.module_dict.items() if loads(name, kind))


@pytest.mark.parametrize('name', loading_types())
def test_every_registered_type_in_anybodys_tool(good, tmp_path, others_tool, name):
    """``init_cfg`` is safe everywhere; ``load_checkpoint`` in a process that called ``register_safe_loading``."""
    evil = str(tmp_path / 'evil.pth')
    builtin_call({f'backbone.{key}': value for key, value in good.items()}, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    if 'Teacher' in name:
        source = dict(config=str(ROOT / 'configs/cvt_nano_cifar10.py')) if 'Classifier' in name else dict(
            model_name='test_resnet')
        with pytest.raises(CheckpointError, match='is refused'):
            MODELS.build(dict(type=f'cvt_dense.{name}', checkpoint=evil, **source))
    elif name in ARGUMENTS:
        with pytest.raises(CheckpointError, match='is refused'):
            MODELS.build(dict(ARGUMENTS[name], type=f'cvt_dense.{name}', init_cfg=dict(
                type='Pretrained', checkpoint=evil))).init_weights()
        register_safe_loading()
        with pytest.raises(CheckpointError, match='is refused'):
            load_checkpoint(MODELS.build(dict(ARGUMENTS[name], type=f'cvt_dense.{name}')), evil)
    else:  # it has no weights of its own, and does not go through MMEngine's loading
        assert MODELS.get(name).init_weights is not BaseModule.init_weights, f'add {name} to ARGUMENTS'
    assert not (tmp_path / 'PWNED').exists()


def test_a_runner_in_our_tools(good, tmp_path, our_tool):
    runner = Runner(CLASSIFIER, str(tmp_path / 'work'), experiment_name='attack')
    builtin_call(good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    for load in (runner.load_checkpoint, runner.resume):
        with pytest.raises(CheckpointError, match='is refused'):
            load(str(tmp_path / 'evil.pth'))
    # MMEngine would run the text of a config when it resumes.
    text = f'import pathlib\npathlib.Path({str(tmp_path / "PWNED")!r}).touch()'
    torch.save(dict(state_dict=good, meta=dict(config=text, epoch=1, iter=1)), tmp_path / 'config.pth')
    with pytest.raises(Exception):  # without data there is nothing to resume, after the text would have been run
        runner.resume(str(tmp_path / 'config.pth'))
    assert not (tmp_path / 'PWNED').exists()


TOOLS = [
    ['train', '{config}', '--work-dir', '{folder}/work', '--resume'],
    ['train', '{config}', '--work-dir', '{folder}/new', '--cfg-options', 'load_from={evil}'],
    ['test', '{config}', '{evil}', '--work-dir', '{folder}/new'],
    ['predict', '{config}', '{evil}', '{folder}/data/val/dark', '--out-dir', '{folder}/new'],
    ['export', '{config}', '{evil}', '{folder}/new.onnx'],
    ['attention', '{config}', '{evil}', '{folder}/data/val/dark', '--out-dir', '{folder}/new'],
    ['convert_checkpoint', '{evil}', '{folder}/new.pth', '--to', 'microsoft'],
]


@pytest.fixture(scope='module')
def folder(good, tmp_path_factory):
    """A tiny config with its data, and a hostile checkpoint, also as the last one of a run."""
    folder = tmp_path_factory.mktemp('tools')
    write_config(folder)
    chain_of_getattr(good, folder / 'evil.pth', folder / 'PWNED')
    (folder / 'work').mkdir()
    (folder / 'work/epoch_1.pth').write_bytes((folder / 'evil.pth').read_bytes())
    return folder


@pytest.mark.parametrize('command', TOOLS, ids=lambda command: command[0])
def test_our_tools(folder, others_tool, command):
    names = dict(config=folder / 'tiny.py', evil=folder / 'evil.pth', folder=folder)
    assert 'is refused' in run_tool(*(word.format(**names) for word in command), rc=2)
    assert not (folder / 'PWNED').exists() and not list(folder.glob('new*.*'))
    assert not list(folder.glob('new/*.pth')) and not list(folder.glob('new/*.jpg'))


def test_a_damaged_or_poisoned_state_is_not_the_processs(good, tmp_path):
    """The table of statistics belongs to the class, so a file may not change it."""
    history = HistoryBuffer()
    table = dict(HistoryBuffer._statistics_methods)
    history.update(2.)

    class Poisoned:
        def __reduce__(self):
            return HistoryBuffer.__new__, (HistoryBuffer, ), dict(history.__dict__, statistics_methods=dict(
                mean=torch.Size))

    torch.save(dict(state_dict=good, extra=history), tmp_path / 'good.pth')
    read = read_checkpoint(tmp_path / 'good.pth')['extra']
    assert type(read) is HistoryBuffer and read.statistics('mean') == 2
    torch.save(dict(state_dict=good, extra=Poisoned()), tmp_path / 'poisoned.pth')
    with pytest.raises(CheckpointError):
        read_checkpoint(tmp_path / 'poisoned.pth')
    assert HistoryBuffer._statistics_methods == table
