"""A run that is told to stop saves and ends with 0, whenever the signal comes and whichever processes get it."""
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tiny_training import load, start, write_config

FLAGS = {
    'classification': ('train_cfg.max_epochs=1000', 'train_cfg.val_interval=2', 'val_dataloader.batch_size=1'),
    'detection': ('train_cfg.max_iters=1000', 'train_cfg.val_interval=3', 'val_dataloader.batch_size=1'),
    'segmentation': ('train_cfg.max_iters=1000', 'train_cfg.val_interval=3', 'val_dataloader.batch_size=1'),
}
CONFIGS = dict(detection='maskrcnn_cvt_nano_shapes', segmentation='upernet_cvt_nano_shapes')
# What the log says when the signal is sent.
MOMENTS = dict(before=r'(Epoch|Iter)\(train\).*\[ *2/', inside=r'(Epoch|Iter)\(val\).*\[ *1/',
               after=r'(?s)(Epoch|Iter)\(val\).*(Epoch|Iter)\(train\)')


@pytest.fixture(scope='module')
def folder(run_tool, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('stop')
    write_config(folder)
    run_tool('-m', 'cvt_dense.datasets.synthetic', folder / 'shapes', '--train', 8, '--val', 16,
             '--train-per-class', 1, '--val-per-class', 1)
    return folder


@pytest.mark.parametrize('moment', MOMENTS)
@pytest.mark.parametrize('task', FLAGS)
def test_signal_to_all_processes(folder, tmp_path, task, moment):
    """With workers of both loaders that outlive an epoch: none may take the signal for its own."""
    options = [f'{loader}_dataloader.{option}' for loader in ('train', 'val')
               for option in ('num_workers=1', 'persistent_workers=True')]
    command = [sys.executable, 'tools/train.py', folder / 'tiny.py', '--work-dir', tmp_path]
    if task in CONFIGS:
        command[2:3] = [f'configs/{CONFIGS[task]}.py', '--data-root', folder / 'shapes' / task]
        options += ['train_dataloader.batch_size=2']
    options += ['default_hooks.logger.interval=1']
    with start(*command, '--cfg-options', *FLAGS[task], *options, output=tmp_path / 'output.txt') as process:
        process.wait_for(lambda: re.search(MOMENTS[moment], process.text()) is not None)
        os.killpg(process.popen.pid, signal.SIGTERM)
        output = process.finish()
        assert not process.group_is_alive()
    saved = load(tmp_path / 'preempted.pth')
    assert f'SIGTERM: the run was saved after iteration {saved["meta"]["iter"]} and ends' in output
    assert saved['state_dict'] and saved['optimizer']['state']
    if moment == 'inside':  # broken off
        assert not (tmp_path / 'last_evaluation').exists()
