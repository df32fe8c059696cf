"""The scripts of benchmarks/."""
import json

import pytest
from load_tool import load_tool, run_tool

pytestmark = pytest.mark.slow


@pytest.mark.parametrize('allowed', [1, 0])
@pytest.mark.parametrize('check', ['values', 'gradients'])
def test_the_self_check_fails_beyond_its_tolerances(check, allowed, monkeypatch):
    checks = load_tool('checks')
    for name in ('fp32', 'bf16'):
        monkeypatch.setitem(checks.TOLERANCES, name, allowed * checks.TOLERANCES[name])
        assert getattr(checks, check)(name, 'cpu')['state'] == ('ok' if allowed else 'failed')


def test_a_check_that_hangs_or_crashes_loses_only_itself(tmp_path, monkeypatch):
    selfcheck = load_tool('selfcheck')
    todo = ('hang', 'time:sleep', 60), ('crash', 'os:abort'), ('1', 'builtins:dict', {})
    monkeypatch.setattr(selfcheck, 'checks', lambda device: todo)
    monkeypatch.setattr(selfcheck, 'SHARE', 0.02)
    run_tool('selfcheck', '--device', 'cpu', '--minutes', 5, '--out', tmp_path, rc=1)
    states = {entry['name']: entry['state'] for entry in json.loads((tmp_path / 'selfcheck.json').read_text())}
    assert states == {'environment': 'ok', 'hang': 'failed', 'crash': 'failed', '1': 'ok'}
