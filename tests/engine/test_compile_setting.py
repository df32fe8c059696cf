"""``compile`` in a config compiles the backbone, from start to resume.

Here with dict(backend='eager'), which traces the network as True does, but generates no code.
"""
import pytest
import torch
from load_tool import run_tool
from tiny_training import differences, load, write_config

pytestmark = pytest.mark.slow


def test_a_compiled_run_is_resumed_with_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr('torch._dynamo.config.fail_on_recompile_limit_hit', True)  # in place of a warning
    config = write_config(tmp_path)
    config.write_text(config.read_text() + "compile = dict(backend='eager')\n")
    whole, resumed = tmp_path / 'whole', tmp_path / 'resumed'
    args = 'train', config, '--cfg-options', 'default_hooks.checkpoint.max_keep_ckpts=3', 'train_cfg.max_epochs=3'
    run_tool(*args, '--work-dir', whole)
    run_tool(*args, '--work-dir', resumed, '--resume', whole / 'epoch_1.pth')
    assert not differences(whole / 'epoch_3.pth', resumed / 'epoch_3.pth')
    assert 'The backbone is compiled' in next(resumed.glob('*/*.log')).read_text()
    before, after = (load(whole / f'epoch_{epoch}.pth')['ema_state_dict'] for epoch in (1, 3))
    assert not torch.equal(before['module.head.weight'], after['module.head.weight'])
