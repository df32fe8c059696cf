"""Fixtures of the tests of the tools: drawn data, and a small untrained network of each task."""
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, DefaultScope

from cvt_dense import inference
from cvt_dense.inference.palette import choose_palette
from cvt_dense.recipes.shapes import CLASSES, generate

CONFIGS = Path(__file__).resolve().parents[2] / 'configs'
NANO = dict(classification='cvt', detection='maskrcnn_cvt', segmentation='upernet_cvt')


@pytest.fixture(scope='session')
def shapes(tmp_path_factory) -> Path:
    """Drawn data of the three tasks: a folder for each."""
    return generate(tmp_path_factory.mktemp('data') / 'shapes', train=4, val=2, train_per_class=2, val_per_class=1)


@pytest.fixture(scope='session')
def nano(tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    """By task, config and checkpoint of an untrained network."""
    folder, networks = tmp_path_factory.mktemp('checkpoints'), {}
    for task, name in NANO.items():
        config = folder / f'{name}_nano_shapes.py'
        config.write_text(f"_base_ = '{CONFIGS / config.name}'\n"
                          'train_dataloader = val_dataloader = test_dataloader = dict(num_workers=0)\n')
        cfg = Config.fromfile(config)
        with DefaultScope.overwrite_default_scope(cfg.get('default_scope') or 'mmengine'):
            torch.manual_seed(0)
            weights = MODELS.build(cfg.model).state_dict()
        classes = (('background', *CLASSES) if task == 'segmentation' else CLASSES)
        meta = dict(dataset_meta=dict(classes=classes, palette=choose_palette(classes)))
        torch.save(dict(state_dict=weights, meta=meta), folder / f'{task}.pth')
        networks[task] = config, folder / f'{task}.pth'
    return networks


@pytest.fixture(scope='module')
def models(nano) -> dict[str, inference.Model]:
    """By task, the untrained network, ready to predict."""
    return {task: inference.load(*files, device='cpu') for task, files in nano.items()}
