"""tools/test.py --fuse on a checkpoint with averaged weights."""
import re

import pytest
import torch
from load_tool import run_tool
from mmengine.config import Config
from tiny_training import write_config
from torch import nn

from cvt_dense.registry import MODELS


def weights(cfg: Config, seed: int):
    torch.manual_seed(seed)
    model = MODELS.build(cfg.model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, .3, 3)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=.2)
    return model.state_dict()


def losses(output: str):
    return {name: float(value) for name, value in re.findall(r'(raw/loss|accuracy/loss): ([\d.]+)', output)}


def test_same_metrics(tmp_path):
    config = write_config(tmp_path)
    cfg = Config.fromfile(config)
    raw = {f'module.{key}': value for key, value in weights(cfg, 1).items()}
    torch.save(dict(state_dict=weights(cfg, 2), ema_state_dict=dict(raw, steps=torch.tensor(9)), meta={}),
               tmp_path / 'model.pth')
    args = ('test', config, tmp_path / 'model.pth', '--work-dir', tmp_path / 'work')
    plain, fused = run_tool(*args), run_tool(*args, '--fuse')
    assert 'fused for the test' in fused and 'fused for the test' not in plain
    assert losses(plain) == pytest.approx(losses(fused), abs=1e-4)
    assert set(losses(plain)) == {'raw/loss', 'accuracy/loss'} and len(set(losses(plain).values())) == 2
