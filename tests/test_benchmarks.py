"""The scripts of benchmarks/; the estimates of roofline.py against what can be computed by hand."""
import json

import pytest
import torch
from load_tool import load_tool, run_tool
from torch import nn

pytestmark = pytest.mark.slow

roofline = load_tool('roofline')
GPU = roofline.GPU(tensor=1e12, cuda=1e11, bandwidth=1e9)


def test_memory_is_what_the_backward_pass_needs():
    kept, peaks = 1e5 * 64 * 4, []
    for train in (False, True):
        with torch.device('meta'):
            network = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(10)))
        peaks.append(roofline.trace(network, lambda network: network(torch.randn(100_000, 64)).mean(), GPU,
                                    dtype=torch.float32, train=train).peak)
    assert 2 * kept < peaks[0] < 5 * kept and 10 * kept < peaks[1] < 15 * kept


def cells(*args):
    head, _, row = (line for line in run_tool('plan', *args).splitlines() if line.startswith('|'))
    return dict(zip(head.split(' | '), row.split(' | ')))


def test_more_gpus_train_in_larger_steps():
    config = 'configs/cvt13_in1k.py'
    eight, sixteen = cells(config), cells(config, '--gpus', 16, '--cores', 100)
    assert (eight['images a step'], eight['learning rate']) == ('8 x 256', '0.002')
    assert (sixteen['images a step'], sixteen['learning rate']) == ('16 x 256', '0.004')
    assert (eight['decides'], sixteen['decides']) == ('loader', 'GPU')


@pytest.mark.parametrize('allowed', [1, 0])
@pytest.mark.parametrize('check', ['values', 'gradients'])
def test_the_self_check_fails_beyond_its_tolerances(check, allowed, monkeypatch):
    checks = load_tool('checks')
    for name in ('fp32', 'bf16'):
        monkeypatch.setitem(checks.TOLERANCES, name, allowed * checks.TOLERANCES[name])
        assert getattr(checks, check)(name, 'cpu')['state'] == ('ok' if allowed else 'failed')


def test_a_check_that_hangs_or_crashes_loses_only_itself(tmp_path, monkeypatch):
    selfcheck = load_tool('selfcheck')
    todo = ('hang', 'time:sleep', 60), ('1', 'builtins:dict', {}), ('crash', 'os:abort'), ('2', 'builtins:dict', {})
    monkeypatch.setattr(selfcheck, 'checks', lambda device: todo)
    monkeypatch.setattr(selfcheck, 'SHARE', 0.02)
    run_tool('selfcheck', '--device', 'cpu', '--minutes', 5, '--out', tmp_path, rc=1)
    states = {entry['name']: entry['state'] for entry in json.loads((tmp_path / 'selfcheck.json').read_text())}
    assert states == {'environment': 'ok', 'hang': 'failed', '1': 'ok', 'crash': 'failed', '2': 'ok'}
