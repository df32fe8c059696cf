"""Shared fixtures: everything runs offline, seeded, on the CPU."""
import functools
import gc
import os
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE='1', WANDB_MODE='offline', MPLBACKEND='Agg', CUDA_VISIBLE_DEVICES='',
                  NO_PROXY='127.0.0.1', no_proxy='127.0.0.1',
                  SYMPY_CACHE_SIZE='None')  # an export for any size works on more expressions than SymPy keeps
JOB = 'SLURM_', 'TORCHELASTIC_', 'PET_', 'GPUS_PER_NODE', 'CPUS_PER_TASK', 'DEVICE', 'MAX_RESTARTS'
for name in [name for name in os.environ if name.startswith(JOB)]:  # of a job around the tests
    del os.environ[name]

import pytest
import torch
from load_tool import forget_runs
from mmengine.runner import runner
from yapf.yapflib import yapf_api

from cvt_dense.shapes import generate

# Every run formats its config several times and asks the compilers for their versions, half of its time here.
yapf_api.FormatCode = lambda text, **_: (text, True)
runner.collect_env = functools.cache(runner.collect_env)
gc.set_threshold(50_000, 20, 100)  # an export makes many objects, of which few are garbage


def pytest_collection_modifyitems(items):
    # A file runs in one process of pytest-xdist, so the slow ones begin first, and the exports as the slowest.
    items.sort(key=lambda item: (item.get_closest_marker('slow') is None, item.path.parent.name != 'deploy'))


@pytest.fixture(autouse=True)
def _as_a_process_of_its_own(caplog):
    """Seed PyTorch; forget what another test of this process has left."""
    torch.manual_seed(0)
    caplog.handler.setLevel(0)  # nncf.set_log_level sets pytest's handler to ERROR, for good
    forget_runs()
    if len(gc.get_objects()) > 100_000:
        # MMEngine collects garbage for each data set, and each time looks at every object of the imported packages.
        gc.collect()
        gc.freeze()


@pytest.fixture(scope='session')
def shapes(tmp_path_factory) -> Path:
    """Drawn data of the three tasks: a folder for each. Tests do not change it."""
    return generate(tmp_path_factory.mktemp('shapes') / 'data', size=64, train=8, val=4, train_per_class=4,
                    val_per_class=1)
