"""benchmarks/pruning.py: tests a network with fewer tokens, and puts its metric over the time."""
import json

import torch
from mmengine.config import Config
from tiny_training import write_config

from cvt_dense.registry import MODELS


def test_curve(tmp_path, run_tool):
    """What was tested before is taken, the rest is tested by tools/test.py."""
    config = write_config(tmp_path)
    torch.save(dict(state_dict=MODELS.build(Config.fromfile(config).model).state_dict(), meta={}),
               tmp_path / 'model.pth')
    (tmp_path / 'out' / 'whole' / 'as_is').mkdir(parents=True)
    settings = dict(config=str(config), checkpoint=str(tmp_path / 'model.pth'), data_root=None, refresh=4,
                    written=(tmp_path / 'model.pth').stat().st_mtime, finetune=None)
    (tmp_path / 'out' / 'settings.json').write_text(json.dumps(settings))
    (tmp_path / 'out' / 'whole' / 'as_is' / 'metrics.json').write_text('{"accuracy/top1": 12.25}')
    command = ('benchmarks/pruning.py', config, tmp_path / 'model.pth', '--size', '32x32', '--keep', '0.5',
               '--rounds', '1', '--work-dir', tmp_path / 'out', '--scores', 'norm')
    output = run_tool(*command).stdout
    rows = json.loads((tmp_path / 'out' / 'pruning.json').read_text())['rows']
    assert [row['name'] for row in rows] == ['whole', 'norm_0.5'] and f'{rows[1]["name"]}  ' in output
    assert rows[0]['accuracy/top1'] == 12.25 and rows[1]['accuracy/top1'] in range(101)
    assert all(row['backbone_ms'] > 0 for row in rows)
    assert (tmp_path / 'out' / 'pruning.png').stat().st_size > 5000
    written = Config.fromfile(tmp_path / 'out' / 'norm_0.5' / 'norm_0.5.py')
    pruning = dict(type='cvt_dense.PrunedCvT', keep=0.5, refresh=4, score='norm')
    assert {key: written.model.backbone[key] for key in pruning} == pruning
    refused = run_tool(*command, '--finetune', 'train_cfg.max_epochs=1', rc=2).stdout
    assert 'holds a comparison with other settings (finetune; see' in refused
