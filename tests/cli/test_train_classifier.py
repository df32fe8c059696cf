"""tools/train.py on classification, as users call it."""
import re

import pytest
import torch
from load_tool import ROOT, run_tool
from tiny_training import CONFIG, load, write_config


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The full recipe for a tiny network and its data."""
    folder = tmp_path_factory.mktemp('classifier')
    text = CONFIG.format(base=str(ROOT / 'configs/cvt13_in1k.py'), data=str(folder / 'data'))
    for old, new in (('arch=dict(', 'arch=dict(_delete_=True, '), ('batch_size=16', 'batch_size=16, num_workers=0')):
        text = text.replace(old, new)
    write_config(folder).write_text(text)
    return folder


@pytest.fixture(scope='module')
def run(folder):
    """An undisturbed run: (work dir, output)."""
    return folder / 'run', run_tool('train', folder / 'tiny.py', '--work-dir', folder / 'run')


def test_trains_evaluates_and_saves(run):
    work_dir, output = run
    results = re.findall(r'Epoch\(val\) \[\d\]\[7/7\] +accuracy/top1: ([\d.]+) .*accuracy/top5: 100.0000 '
                         r'+accuracy/loss: ([\d.]+) .*raw/top1: ([\d.]+) .*raw/loss: ([\d.]+)', output)
    assert len(results) == 2
    assert results[-1][1] != results[-1][3], 'averaged and raw weights give the same loss'
    saved = load(work_dir / 'epoch_8.pth')
    assert {'state_dict', 'ema_state_dict', 'optimizer', 'param_schedulers'} <= set(saved)
    name = 'backbone.stage0.blocks.0.attn.conv_proj_q.conv.weight'
    assert (saved['state_dict'][name] != saved['ema_state_dict'][f'module.{name}']).any()
    assert len(list(work_dir.glob('best_accuracy_top1_epoch_*.pth'))) == 1


def test_nonfinite_loss_stops_and_keeps_the_last_checkpoint(folder, tmp_path):
    args = ['train', folder / 'tiny.py', '--work-dir', tmp_path / 'work']
    options = ['--cfg-options', 'auto_scale_lr.enable=False', 'param_scheduler=[]']
    run_tool(*args, *options, 'train_cfg.max_epochs=1')
    before = (tmp_path / 'work/epoch_1.pth').read_bytes()
    state = load(tmp_path / 'work/epoch_1.pth')
    state['ema_state_dict']['module.head.bias'][0] = float('inf')  # raw weights: training goes on with them
    torch.save(state, tmp_path / 'broken.pth')
    output = run_tool(*args, '--resume', tmp_path / 'broken.pth', *options, rc=2)
    assert 'iteration 4' in output and 'Traceback' not in output
    assert (tmp_path / 'work/epoch_1.pth').read_bytes() == before and not (tmp_path / 'work/epoch_2.pth').exists()
    saved = load(tmp_path / 'work/nonfinite_iter4_rank0.pth')
    assert saved['iter'] == 3 and saved['data_batch']['inputs'].shape == (12, 3, 32, 32)
