"""Which GPU a task of Slurm takes."""
import os

import pytest
import torch

from cvt_dense.launch.distributed import setup_distributed


@pytest.mark.parametrize('gpus, expected', [(8, '5'), (1, '0'), (0, '5')])  # of the host, of the task alone, CPUs
def test_variables_from_slurm(gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)  # MMEngine makes the process group
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: gpus)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_PORT'):
        monkeypatch.setenv(name, '')  # so that what is set here is undone
        monkeypatch.delenv(name)
    for name, value in dict(JOB_ID=20007, PROCID=13, NTASKS=16, NODELIST='localhost', LOCALID=5).items():
        monkeypatch.setenv(f'SLURM_{name}', str(value))
    monkeypatch.setenv('MASTER_ADDR', '127.0.0.1')
    setup_distributed('slurm')
    names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'SLURM_LOCALID', 'MASTER_PORT')
    assert [os.environ[name] for name in names] == ['13', '16', expected, expected, '20007']
