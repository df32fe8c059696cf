"""Which GPU a process takes."""
import os

import pytest
import torch

from cvt_dense.errors import UserError
from cvt_dense.launch.distributed import local_rank_of_slurm, setup_distributed


def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setenv('RANK', '3')
    monkeypatch.setenv('LOCAL_RANK', '2')
    with pytest.raises(UserError, match='Process 3'):
        setup_distributed('pytorch')


@pytest.mark.parametrize('gpus, variables, expected', [
    (8, dict(SLURM_LOCALID='5', SLURM_GPUS_ON_NODE='8'), '5'),  # --gres=gpu:8: all tasks see all
    (1, dict(SLURM_LOCALID='5', SLURM_GPUS_PER_TASK='1'), '0'),  # --gpus-per-task=1
    (1, dict(SLURM_LOCALID='5', SLURM_GPUS_PER_TASK='1', SLURM_GPUS_ON_NODE='8'), '0'),
    (1, dict(SLURM_LOCALID='5', SLURM_GPU_BIND='single:1', SLURM_GPUS_ON_NODE='8'), '0'),
    (1, dict(SLURM_LOCALID='5', SLURM_GPUS_ON_NODE='8'), '0'),  # a cluster's own way of binding
    (1, dict(SLURM_LOCALID='5'), '0'),
    (1, dict(SLURM_LOCALID='1', SLURM_GPUS_ON_NODE='1'), '1'),  # two tasks, one GPU: an error, below
    (1, dict(SLURM_LOCALID='0', SLURM_GPUS_ON_NODE='1'), '0'),
    (0, dict(SLURM_LOCALID='1'), '1'),  # CPUs
    (0, dict(), '0'),
])
def test_local_rank_of_slurm(gpus, variables, expected):
    assert local_rank_of_slurm(variables, gpus) == expected


def test_slurm_with_a_gpu_of_its_own_for_each_task(monkeypatch):
    """The second of two tasks is accepted if the one GPU that it sees is its own; otherwise it gets an error."""
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 1)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_PORT', 'SLURM_GPUS_PER_TASK', 'SLURM_GPU_BIND'):
        monkeypatch.setenv(name, '')  # so that what is set here is undone
        monkeypatch.delenv(name)
    for name, value in dict(JOB_ID=7, PROCID=1, NTASKS=2, NODELIST='localhost', LOCALID=1, GPUS_ON_NODE=1).items():
        monkeypatch.setenv(f'SLURM_{name}', str(value))
    monkeypatch.setenv('MASTER_ADDR', '127.0.0.1')
    with pytest.raises(UserError, match='Process 2'):
        setup_distributed('slurm')
    monkeypatch.setenv('SLURM_GPUS_PER_TASK', '1')
    setup_distributed('slurm')
    assert {name: os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'SLURM_LOCALID')} == dict(
        RANK='1', WORLD_SIZE='2', LOCAL_RANK='0', SLURM_LOCALID='0')
