"""Fixtures of the tests of the tools: drawn data, and a small untrained network of each task."""
from pathlib import Path

import pytest
from random_weights import save_untrained

from cvt_dense import inference, recipe
from cvt_dense.cli.demo import CONFIGS
from cvt_dense.shapes import CLASSES, generate


@pytest.fixture(scope='session')
def shapes(tmp_path_factory) -> Path:
    """Drawn data of the three tasks: a folder for each."""
    return generate(tmp_path_factory.mktemp('data') / 'shapes', train=4, val=2, train_per_class=2, val_per_class=1)


@pytest.fixture(scope='session')
def nano(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """By task, config and checkpoint of an untrained network."""
    folder = tmp_path_factory.mktemp('checkpoints')
    return {task: save_untrained(Path(recipe(name)), folder / f'{task}.pth',
                                 ('background', *CLASSES) if task == 'segmentation' else CLASSES)
            for task, name in CONFIGS.items()}


@pytest.fixture(scope='module')
def models(nano) -> dict[str, inference.Model]:
    """By task, the untrained network, ready to predict."""
    return {task: inference.load(*files, device='cpu') for task, files in nano.items()}
