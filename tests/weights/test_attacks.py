"""A file that would run code is refused wherever that is promised, and nothing runs."""
import http.server
import threading
from functools import partial

import numpy as np
import pytest
import torch
from load_tool import run_tool
from mmengine.logging import HistoryBuffer
from mmengine.runner import CheckpointLoader, Runner, load_checkpoint
from tiny_training import write_config
from torch import nn
from weights.attacks import ATTACKS

import cvt_dense.models  # noqa: F401  (registers the types)
from cvt_dense.registry import MODELS
from cvt_dense.weights import CheckpointError, read_checkpoint, register_safe_loading

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
CLASSIFIER = dict(type='cvt_dense.ImageClassifier', num_classes=2,
                  backbone=dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'))
# The arguments of each registered type that loads weights from a file.
ARGUMENTS = dict(CvT=dict(arch=ARCH), ImageClassifier=CLASSIFIER, TimmBackbone=dict(model_name='resnet10t'))


@pytest.fixture(scope='module')
def good():
    return MODELS.build(CLASSIFIER).state_dict()


@pytest.mark.parametrize('attack', ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_refused(good, tmp_path, attack):
    path, marker = tmp_path / 'evil.pth', tmp_path / 'PWNED'
    attack(good, path, marker)
    with pytest.raises(CheckpointError, match='evil.pth'):
        read_checkpoint(path)
    assert not marker.exists()


# -- every way in -----------------------------------------------------------------------------------------------


def test_every_url_in_our_tools(good, tmp_path, hub, our_tool, monkeypatch):
    server = http.server.ThreadingHTTPServer(
        ('127.0.0.1', 0), partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(torch.hub, '_hub_dir', str(tmp_path / 'torch'))
    ATTACKS['chain_of_getattr'](good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    torch.save(good, tmp_path / 'good.pth')
    hub('someone/cvt', main=('pytorch_model.bin', tmp_path / 'evil.pth'), good=('model.bin', tmp_path / 'good.pth'))
    site = f'http://127.0.0.1:{server.server_port}'
    for source in (tmp_path / 'evil.pth', f'{site}/evil.pth', 'hf://someone/cvt'):
        with pytest.raises(CheckpointError):
            load_checkpoint(nn.Linear(1, 1), str(source))  # anybody's model
    assert not (tmp_path / 'PWNED').exists()
    for source in (tmp_path / 'good.pth', f'{site}/good.pth', 'hf://someone/cvt/model.bin@good'):
        assert set(CheckpointLoader.load_checkpoint(str(source))['state_dict']) == set(good)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize('name', ARGUMENTS)
def test_every_type_with_weights_in_anybodys_tool(good, tmp_path, others_tool, name):
    """``init_cfg`` is safe everywhere; ``load_checkpoint`` in a process that called ``register_safe_loading``."""
    evil, state_dict = str(tmp_path / 'evil.pth'), {f'backbone.{key}': value for key, value in good.items()}
    ATTACKS['builtin_call'](state_dict, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    init_cfg = dict(type='Pretrained', checkpoint=evil)
    with pytest.raises(CheckpointError, match='evil'):
        MODELS.build(dict(ARGUMENTS[name], type=f'cvt_dense.{name}', init_cfg=init_cfg)).init_weights()
    register_safe_loading()
    with pytest.raises(CheckpointError, match='evil'):
        load_checkpoint(nn.Linear(1, 1), evil)
    assert not (tmp_path / 'PWNED').exists()


def test_a_runner_in_our_tools(good, tmp_path, our_tool):
    runner = Runner(CLASSIFIER, str(tmp_path / 'work'), experiment_name='attack')
    ATTACKS['builtin_call'](good, tmp_path / 'evil.pth', tmp_path / 'PWNED')
    for load in (runner.load_checkpoint, runner.resume):
        with pytest.raises(CheckpointError, match='evil'):
            load(str(tmp_path / 'evil.pth'))
    assert not (tmp_path / 'PWNED').exists()
    torch.save(dict(state_dict=good, meta=dict(config='print()', iter=1)), tmp_path / 'config.pth')
    # MMEngine's Runner would run the text of a config when it resumes.
    assert runner.load_checkpoint(str(tmp_path / 'config.pth'))['meta'] == dict(iter=1)


TOOLS = [
    ['train', '{config}', '--work-dir', '{folder}/work', '--resume'],
    ['train', '{config}', '--work-dir', '{folder}/new', '--cfg-options', 'load_from={evil}'],
    ['test', '{config}', '{evil}', '--work-dir', '{folder}/new'],
    ['predict', '{config}', '{evil}', '{folder}/data/val/dark', '--out-dir', '{folder}/new'],
    ['export', '{config}', '{evil}', '{folder}/new.onnx'],
    ['convert_checkpoint', '{evil}', '{folder}/new.pth', '--to', 'microsoft']]


@pytest.fixture(scope='module')
def folder(good, tmp_path_factory):
    """A tiny config with its data, and a hostile checkpoint, also as the last one of a run."""
    folder = tmp_path_factory.mktemp('tools')
    write_config(folder)
    ATTACKS['chain_of_getattr'](good, folder / 'evil.pth', folder / 'PWNED')
    (folder / 'work').mkdir()
    (folder / 'work/epoch_1.pth').write_bytes((folder / 'evil.pth').read_bytes())
    return folder


@pytest.mark.parametrize('command', TOOLS, ids=lambda command: command[0])
def test_our_tools_refuse_a_hostile_checkpoint(folder, others_tool, command):
    names = dict(config=folder / 'tiny.py', evil=folder / 'evil.pth', folder=folder)
    assert '.pth' in run_tool(*(word.format(**names) for word in command), rc=2)
    assert not (folder / 'PWNED').exists() and not list(folder.glob('new*.*'))
    assert not list(folder.glob('new/*.pth')) and not list(folder.glob('new/*.png'))


def test_a_poisoned_history_is_a_history(good, tmp_path):
    """The table of statistics belongs to the class, so a file may not change it."""
    history, table = HistoryBuffer(), dict(HistoryBuffer._statistics_methods)
    history.update(2.)
    history._statistics_methods = dict(mean=torch.Size)
    torch.save(dict(state_dict=good, extra=history, row=np.array([])), tmp_path / 'poisoned.pth')
    read, row = map(read_checkpoint(tmp_path / 'poisoned.pth').get, ('extra', 'row'))
    assert type(read) is HistoryBuffer and read.statistics('mean') == 2 and row.shape == (0, )
    assert HistoryBuffer._statistics_methods == table
