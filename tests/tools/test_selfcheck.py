"""tools/selfcheck.py on a CPU."""
import json
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tools'))

import _selfcheck
from selfcheck import TABLES, Report


def test_as_typed(run_tool, tmp_path):
    out = run_tool('tools/selfcheck.py', '--device', 'cpu', '--minutes', '0.3', '--out', tmp_path / 'a').stdout
    entries = {entry['name']: entry for entry in json.loads((tmp_path / 'a/selfcheck.json').read_text())}
    assert entries['environment']['torch'] == torch.__version__
    assert entries['values, fp32']['state'] == 'ok' and entries['values, tf32']['reason'] == 'TF32 is for GPUs'
    # whatever time was not left for is there too, with the reason
    assert set(entries) == {'environment', *_selfcheck.CHECKS, *(f'speed, {name}' for name, _ in TABLES['cpu'])}
    assert not [entry for entry in entries.values() if entry['state'] == 'failed']
    assert '0 failed' in out.splitlines()[-1]
    wrong = run_tool('tools/selfcheck.py', '--device', 'cuda', '--out', tmp_path / 'b', rc=2).stdout
    assert 'sees no CUDA device' in wrong


@pytest.mark.parametrize('name', [name for name in _selfcheck.CHECKS if 'compiled' not in name])
def test_every_check_passes_here_or_says_why_not(name):
    try:
        found = _selfcheck.CHECKS[name]('cpu')
    except _selfcheck.Skip as reason:
        assert len(str(reason)) > 10
    else:
        assert not found.get('failed'), found


def test_a_broken_network_fails(monkeypatch):
    """Scores 1 % too large."""
    from cvt_dense.models.layers import conv_attention
    original = conv_attention.F.scaled_dot_product_attention
    monkeypatch.setattr(conv_attention.F, 'scaled_dot_product_attention',
                        lambda q, *args, **kwargs: original(1.01 * q, *args, **kwargs))
    assert _selfcheck.CHECKS['values, fp32']('cpu')['failed']


def test_errors_are_entries_and_the_file_is_whole(tmp_path, capsys):
    def broken(device):
        raise RuntimeError('no such kernel')
    report = Report(tmp_path / 'x.json', until=float('inf'))
    report.run('first', broken, 'cpu')
    report.run('second', lambda device: dict(difference=1., failed=True), 'cpu')
    report.until = 0.
    report.run('third', broken, 'cpu')
    assert [(entry['state'], entry.get('error') or entry.get('reason') or entry['difference'])
            for entry in json.loads((tmp_path / 'x.json').read_text())] == [
        ('failed', 'RuntimeError: no such kernel'), ('failed', 1.), ('skipped', 'no time left (--minutes)')]
