"""The recipes, and the templates of ``configs/*_custom.py`` as a user edits them."""
import copy
import functools
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS

from cvt_dense.recipes import edit_head

ROOT = Path(__file__).resolve().parents[1]
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


def learning_rates(lr: float, schedulers: list[dict], epochs: int, epoch_length: int) -> list[float]:
    """Return the learning rate before each iteration, by a recipe's own schedulers stepped as MMEngine steps them."""
    wrapper = build_optim_wrapper(torch.nn.Linear(1, 1), dict(type='OptimWrapper', optimizer=dict(type='SGD', lr=lr)))
    rates, built = [], []
    for scheduler in schedulers:
        settings = dict(scheduler, optimizer=wrapper)
        cls = PARAM_SCHEDULERS.get(settings.pop('type'))
        by_iteration = settings.pop('convert_to_iter_based', False)
        built.append(cls.build_iter_from_epoch(epoch_length=epoch_length, **settings) if by_iteration
                     else cls(**settings))
    for iteration in range(1, epochs * epoch_length + 1):
        rates.append(wrapper.optimizer.param_groups[0]['lr'])
        for scheduler in built:
            if not scheduler.by_epoch or iteration % epoch_length == 0:
                scheduler.step()
    return rates


def by_name(model: torch.nn.Module, wrapper: OptimWrapper) -> dict[str, tuple[float, float]]:
    """Return (learning rate, weight decay) of every parameter; each must be in exactly one group."""
    names = {id(param): name for name, param in model.named_parameters()}
    groups = [(names[id(param)], (group['lr'], group['weight_decay']))
             for group in wrapper.optimizer.param_groups for param in group['params']]
    assert len(groups) == len(dict(groups)) == len(names)
    return dict(groups)


def write_template(folder: Path, template: str, **lines: Any) -> Path:
    """Write an edited template, whose data are loaded without workers, into ``folder`` and return its path."""
    path = folder / f'{template}.py'
    path.write_text(edit_head(template, **lines) + WITHOUT_WORKERS)
    return path
