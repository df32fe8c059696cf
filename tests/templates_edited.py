"""The recipes, and the templates of ``configs/*_custom.py`` as a user edits them."""
import copy
import functools
import re
from pathlib import Path
from typing import Any

import torch
from load_tool import ROOT
from mmengine.config import Config
from mmengine.optim import OptimWrapper, build_optim_wrapper

from cvt_dense.shapes import CLASSES

WITHOUT_WORKERS = """
for _loader in (train_dataloader, val_dataloader, test_dataloader):
    _loader.update(num_workers=0, persistent_workers=False)
"""


@functools.cache
def parsed(name: str) -> Config:
    """Return the config of ``configs/<name>.py``, parsed once in a process; it is not to be changed."""
    return Config.fromfile(ROOT / f'configs/{name}.py')


def recipe(name: str) -> Config:
    """Return a copy of :func:`parsed` that a test may change."""
    return copy.deepcopy(parsed(name))


def layer_decay(model: torch.nn.Module, lr: float, decay_rate: float) -> OptimWrapper:
    """Return AdamW with a weight decay of 0.05 and layer-wise learning rates."""
    return build_optim_wrapper(model, dict(
        type='OptimWrapper', optimizer=dict(type='AdamW', lr=lr, weight_decay=0.05),
        constructor='cvt_dense.LayerDecayOptimWrapperConstructor', paramwise_cfg=dict(decay_rate=decay_rate)))


def by_name(model: torch.nn.Module, wrapper: OptimWrapper) -> dict[str, tuple[float, float]]:
    """Return (learning rate, weight decay) of every parameter; each must be in exactly one group."""
    names = {id(param): name for name, param in model.named_parameters()}
    groups = [(names[id(param)], (group['lr'], group['weight_decay']))
             for group in wrapper.optimizer.param_groups for param in group['params']]
    assert len(groups) == len(dict(groups)) == len(names)
    return dict(groups)


def write_template(folder: Path, template: str, **lines: Any) -> Path:
    """Write an edited template, whose data are loaded without workers, into ``folder`` and return its path.

    'train_ann, train_images' is written train_ann__train_images.
    """
    path = folder / f'{template}.py'
    text = (ROOT / f'configs/{template}.py').read_text()
    for name, value in lines.items():
        names = name.replace('__', ', ')
        text, number = re.subn(rf'^{names} = .*$', lambda _: f'{names} = {value!r}', text, flags=re.M)
        assert number == 1, names
    path.write_text(text + WITHOUT_WORKERS)
    return path


def write_detector(folder: Path, shapes: Path, template: str, **lines: Any) -> Path:
    """Write a template of a detector that trains for two iterations on the drawn shapes; see :func:`write_template`."""
    head = dict(classes=CLASSES, data_root=f'{shapes}/detection/', arch='cvt-nano', image_size=64, batch_size=2,
                max_iters=2, train_ann__train_images=('annotations/instances_train.json', 'train/'),
                val_ann__val_images=('annotations/instances_val.json', 'val/'))
    return write_template(folder, template, **head | lines)
