"""Shared fixtures: everything runs offline, seeded, on the CPU."""
import gc
import os
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE='1', WANDB_MODE='offline', MPLBACKEND='Agg', CUDA_VISIBLE_DEVICES='')

import pytest
import torch
from load_tool import forget_runs

from cvt_dense.shapes import generate

# files that take seconds, because they train, export or start processes; `make quick` leaves them out, as it leaves out
# tests elsewhere that have the marker
SLOW = """
    test_export test_distributed test_device test_mm_tools test_demo test_benchmarks test_guides test_exported
    test_faults test_wheel test_pure_python_configs test_label_maps test_val_loss test_publish
    test_dumps test_setup test_stop test_compile_setting test_channels test_start test_other_libraries
    test_predict_large""".split()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker('slow')
    # A file runs in one process of pytest-xdist, so those that take long begin first.
    items.sort(key=lambda item: SLOW.index(item.path.stem) if item.path.stem in SLOW else len(SLOW))


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
