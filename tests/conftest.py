"""Shared fixtures: everything runs offline, seeded, on the CPU."""
import gc
import os
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE='1', WANDB_MODE='offline', MPLBACKEND='Agg', CUDA_VISIBLE_DEVICES='')

import pytest
import torch
from load_tool import forget_runs

from cvt_dense.recipes.shapes import generate

# files that train, export or start processes, which `make quick` leaves out; a slow test elsewhere has the marker
SLOW = """
    test_distributed test_export test_export_tool test_heads test_wheel test_setup test_demo test_guides
    test_faults test_device test_stop test_resume test_work_dir test_mm_tools test_reports test_publish test_distillation
    test_reference test_transformers test_predict_large test_dumps test_pure_python_configs
    test_other_libraries test_label_maps test_start test_curves test_non_finite
    test_class_folders test_val_loss test_masked_image_model test_report test_exported test_predict test_flops
    test_channels test_class_weights test_attention test_check_config test_benchmarks""".split()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem in SLOW:
            item.add_marker('slow')
    # A file runs in one process of pytest-xdist, so those that take long begin first.
    items.sort(key=lambda item: item.path.stem not in SLOW)


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
