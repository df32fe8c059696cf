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
