"""Reject unknown keys in settings whose keys are all known; misspelt keys would be without effect."""
import difflib
import inspect
from collections.abc import Callable
from typing import Any

from mmengine.config import Config
from mmengine.registry import LOOPS
from mmengine.runner import Runner
from torch.utils.data import DataLoader

from ...errors import UserError
from .run import Run


def check_keys(cfg: Config, run: Run) -> None:
    """Compare the keys of loops, data loaders, ``auto_scale_lr`` and ``randomness`` with what MMEngine's Runner takes.

    Raises:
        UserError: if a key does not exist, or a length, a batch or a number of workers is none.
    """
    least = {f'{stage}_dataloader.{key}': number for stage in run.stages
             for key, number in dict(batch_size=1, num_workers=0).items()}
    if 'train' in run.stages:
        _check(cfg, 'auto_scale_lr', {'base_batch_size', 'enable'})
        least |= {'train_cfg.max_epochs': 1, 'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1}
    for setting, number in least.items():
        place, key = setting.split('.')
        value = (cfg.get(place) or {}).get(key)
        if value is not None and (not isinstance(value, int) or value < number):
            raise UserError(f'{setting}={value!r}: allowed is a whole number from {number}.')
    for stage in run.stages:
        loader = set(_parameters(DataLoader)) | set(_parameters(Runner.build_dataloader)) | {'num_batch_per_epoch'}
        _check(cfg, f'{stage}_dataloader', loader)
        loop = cfg.get(f'{stage}_cfg') or {}
        default = 'IterBasedTrainLoop' if loop.get('by_epoch') is False else 'EpochBasedTrainLoop'
        named = loop.get('type') or (default if stage == 'train' else f'{stage.capitalize()}Loop')
        cls = LOOPS.get(named) if isinstance(named, str) else named
        if cls is not None:
            _check(cfg, f'{stage}_cfg', {*_parameters(cls), 'type', *(['by_epoch'] if stage == 'train' else [])})
    _check(cfg, 'randomness', set(_parameters(Runner.set_randomness)))


def _parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != 'self']


def _check(cfg: Config, path: str, known: set[str]) -> None:
    for key, value in (cfg.get(path) or {}).items():
        if key not in known and key != '_scope_':
            near = difflib.get_close_matches(key, known, 1, 0.6)
            raise UserError(f'{path}.{key}={value!r}: nothing reads it. '
                            + (f'Did you mean {path}.{near[0]}?' if near else f'Allowed: {", ".join(sorted(known))}.'))
