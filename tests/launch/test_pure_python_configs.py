"""Configs whose types are classes, as MMEngine's pure-Python ones have them, are read, checked and run like others."""
from importlib import import_module

import numpy as np
import pytest
import torch
from load_tool import ROOT, run_tool
from mmengine.config import Config
from mmengine.registry import Registry
from PIL import Image
from tiny_training import write_config

CLASSIFIER = """
from mmengine.config import read_base

with read_base():
    from .data import *

from mmengine.dataset import DefaultSampler, default_collate
from mmengine.optim import AmpOptimWrapper
from mmengine.runner import EpochBasedTrainLoop
from torch.optim import AdamW

from cvt_dense.engine import LayerDecayOptimWrapperConstructor, SafeCheckpointHook
from cvt_dense.models import CvT
from cvt_dense.pretraining import Accuracy, ClassificationPreprocessor, ImageClassifier, ImageDataset

model = dict(
    type=ImageClassifier,
    backbone=dict(type=CvT, arch=dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6)),
                  out_type='cls_token', norm_eval=True),
    num_classes=2,
    data_preprocessor=dict(type=ClassificationPreprocessor))
train_dataloader, val_dataloader = (dict(
    batch_size=6, num_workers=0, collate_fn=dict(type=default_collate),
    sampler=dict(type=DefaultSampler, shuffle=split == 'train'),
    dataset=dict(type=ImageDataset, data_root=data_root, split=split, transform=dict(input_size=32)))
    for split in ('train', 'val'))
val_evaluator = dict(type=Accuracy)
train_cfg = dict(type=EpochBasedTrainLoop, max_epochs=1)
val_cfg = dict()
optim_wrapper = dict(
    type=AmpOptimWrapper, dtype='bfloat16', loss_scale=dict(enabled=False),
    optimizer=dict(type=AdamW, lr=1e-3, weight_decay=0.05),
    constructor=LayerDecayOptimWrapperConstructor, paramwise_cfg=dict(decay_rate=1.))
default_hooks = dict(checkpoint=dict(type=SafeCheckpointHook))
auto_scale_lr = dict(base_batch_size=12, enable=True)
randomness = dict(seed=0)
"""


def test_classifier_trains_and_again_from_its_dump(tmp_path):
    folder = write_config(tmp_path).parent
    (folder / 'data.py').write_text(f'data_root = {str(folder / "data")!r}\n')
    (folder / 'pure.py').write_text(CLASSIFIER)
    work_dir = folder / 'work'
    output = run_tool('train', folder / 'pure.py', '--work-dir', work_dir)
    assert 'accuracy/top1: ' in output
    weights = torch.load(work_dir / 'epoch_1.pth', weights_only=False)
    # 6 images a step instead of 12.
    assert weights['meta']['iter'] == 6 and weights['optimizer']['param_groups'][0]['lr'] == 1e-3 / 2
    run_tool('train', work_dir / 'pure.py', '--work-dir', folder / 'again')
    assert 'AmpOptimWrapper' in (folder / 'again/pure.py').read_text()
    other = torch.load(folder / 'again/epoch_1.pth', weights_only=False)
    assert all(torch.equal(value, other['state_dict'][key]) for key, value in weights['state_dict'].items())

    # As the number of outputs reaches the data set, it refuses other labels.
    options = '--work-dir', folder / 'no', '--cfg-options', 'model.num_classes=1'
    assert 'num_classes' in run_tool('train', folder / 'pure.py', *options, rc=2)


def pure_python(cfg):
    """Return the text of the same config with classes in the place of their names, and without a default scope."""
    registries = [registry for package in dict.fromkeys(('cvt_dense', cfg.default_scope, 'mmengine'))
                  for registry in vars(import_module(f'{package}.registry')).values() if isinstance(registry, Registry)]
    registries.sort(key=lambda registry: registry.scope == 'mmengine')  # the other packages have types of equal names
    for registry in registries:
        registry.import_from_location()
    imports = {}

    def write(value, key=None):
        kinds = [registry.module_dict[name] for registry in registries for name in [str(value).split('.')[-1]]
                 if key == 'type' and name in registry.module_dict]
        if kinds:
            parts, name = kinds[0].__module__.split('.'), kinds[0].__name__
            module = next(module for i in range(1, len(parts) + 1) for module in ['.'.join(parts[:i])]
                          if getattr(import_module(module), name, None) is kinds[0])  # as users import it
            alias = f'{module}.{name}'.replace('.', '_')
            imports[alias] = f'from {module} import {name} as {alias}'
            return alias
        if isinstance(value, dict):
            return f'{{{", ".join(f"{name!r}: {write(child, name)}" for name, child in value.items())}}}'
        if isinstance(value, list | tuple):
            return f'{type(value).__name__}([{", ".join(map(write, value))}])'
        return repr(value)

    lines = [f'{key} = {write(value)}' for key, value in cfg.to_dict().items() if key != 'default_scope']
    return '\n'.join([*imports.values(), 'default_scope = None', *lines])


@pytest.mark.parametrize('task, name', [('detection', 'maskrcnn_cvt'), ('segmentation', 'upernet_cvt')])
def test_every_tool_takes_a_dense_config_of_classes_without_a_scope(tmp_path, shapes, task, name):
    cfg = Config.fromfile(ROOT / f'configs/{name}_nano_shapes.py')
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    cfg.train_dataloader.batch_size = 2
    config, data = tmp_path / 'pure.py', ('--data-root', shapes / task)
    config.write_text(pure_python(cfg))
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(tmp_path / 'a.png')
    run_tool('train', config, '--work-dir', tmp_path / 'work', *data)
    made = config, next((tmp_path / 'work').glob('iter_*.pth'))
    run_tool('train', tmp_path / 'work/pure.py', '--work-dir', tmp_path / 'again', '--no-check')  # from its dump
    run_tool('publish', *made, tmp_path / 'published', '--license', 'mit', *data)
    for files in (made, (tmp_path / 'published', )):
        run_tool('predict', *files, tmp_path / 'a.png', '--out-dir', tmp_path / 'drawn', '--force')
    run_tool('test', *made, '--work-dir', tmp_path / 'test', *data, '--slice', 64)
    run_tool('export', *made, tmp_path / 'backbone.pt2', '--part', 'backbone', '--size', '64x64', *data)
    run_tool('diagnose', *made, '--out-dir', tmp_path / 'report', *data)
    run_tool('browse', config, '--out-dir', tmp_path / 'pages', *data)
