"""benchmarks/selfcheck.py on a CPU."""
import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from mmengine.logging import MMLogger

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / 'tools'))

import _selfcheck
import selfcheck


def test_the_whole_report(tmp_path, monkeypatch, capsys, request):
    """With two checks and a table; the others are below."""
    monkeypatch.setattr(_selfcheck, 'CHECKS', {
        name: _selfcheck.CHECKS[name] for name in ('values, fp32', 'values, tf32')})
    monkeypatch.setitem(selfcheck.TABLES, 'cpu', selfcheck.TABLES['cpu'][:1])
    logger = MMLogger.get_current_instance()
    request.addfinalizer(partial(logger.setLevel, logger.level))
    monkeypatch.setattr('sys.argv', ['selfcheck.py', '--device', 'cpu', '--minutes', '30', '--out', str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        selfcheck.main()
    entries = {entry['name']: entry for entry in json.loads((tmp_path / 'selfcheck.json').read_text())}
    assert entries['environment']['torch'] == torch.__version__
    assert entries['values, fp32']['state'] == 'ok' and entries['values, tf32']['reason'] == 'TF32 is for GPUs'
    table = entries[f'speed, {selfcheck.TABLES["cpu"][0][0]}']
    assert [row['name'] for row in table['rows']] == ['eager', 'windowed', 'fused'] and table['images_per_s'] > 0
    assert not end.value.code and '3 ok, 0 failed, 1 skipped' in capsys.readouterr().out


# Compiling takes minutes; other detectors than one: tests/models/test_dense.py
SLOW = ('compiled', 'maskrcnn', 'dino', 'semfpn', 'with_cp', 'resuming, fp16', 'training, fp16')


@pytest.mark.parametrize('name', [name for name in _selfcheck.CHECKS if not any(part in name for part in SLOW)])
def test_every_check_passes_here_or_says_why_not(name):
    try:
        found = _selfcheck.CHECKS[name]('cpu')
    except _selfcheck.Skip as reason:
        assert len(str(reason)) > 10
    else:
        assert not found.get('failed'), found


def test_a_broken_network_fails(monkeypatch):
    """Scores 1 % too large."""
    original = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(torch.nn.functional, 'scaled_dot_product_attention',
                        lambda q, *args, **kwargs: original(1.01 * q, *args, **kwargs))
    assert _selfcheck.CHECKS['values, fp32']('cpu')['failed']


def test_errors_are_entries_and_the_file_is_whole(tmp_path):
    def broken(device):
        raise RuntimeError('no such kernel')
    report = selfcheck.Report(tmp_path / 'x.json', until=float('inf'))
    report.run('first', broken, 'cpu')
    report.run('second', lambda device: dict(difference=1., failed=True), 'cpu')
    report.until = 0.
    report.run('third', broken, 'cpu')
    entries = json.loads((tmp_path / 'x.json').read_text())
    assert [entry['state'] for entry in entries] == ['failed', 'failed', 'skipped']
    assert 'no such kernel' in entries[0]['error'] and '--minutes' in entries[2]['reason']
