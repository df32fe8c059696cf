"""benchmark.py pruning: tests a network with fewer tokens, and puts its metric over the time."""
import json

import torch
from mmengine.config import Config
from tiny_training import write_config

from cvt_dense.registry import MODELS


def test_curve(tmp_path, run_tool):
    """Whole and pruned are tested by tools/test.py; tests/test_documents.py reads the flags."""
    config = write_config(tmp_path)
    torch.save(dict(state_dict=MODELS.build(Config.fromfile(config).model).state_dict(), meta={}),
               tmp_path / 'model.pth')
    output = run_tool('tools/benchmark.py', 'pruning', config, tmp_path / 'model.pth', '--size', '32x32', '--keep',
                      '0.5', '--rounds', '1', '--work-dir', tmp_path / 'out', '--scores', 'norm').stdout
    rows = json.loads((tmp_path / 'out' / 'pruning.json').read_text())['rows']
    assert [row['name'] for row in rows] == ['whole', 'norm_0.5'] and f'{rows[1]["name"]}  ' in output
    assert all(0 <= row['accuracy/top1'] <= 100 and row['backbone_ms'] > 0 for row in rows)
    assert (tmp_path / 'out' / 'pruning.png').stat().st_size > 5000
    written = Config.fromfile(tmp_path / 'out' / 'norm_0.5' / 'norm_0.5.py')
    assert written.model.backbone.token_pruning == dict(keep=0.5, refresh=4, score='norm')
