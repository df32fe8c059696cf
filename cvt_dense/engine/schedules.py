"""Step MMEngine's schedules without a training: through a run before it starts, and to where a resumed run is."""
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isclose
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dist import get_world_size
from mmengine.optim import OptimWrapper
from mmengine.registry import LOOPS, PARAM_SCHEDULERS
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop, Runner
from torch.utils.data import DataLoader

from ..config import class_of
from ..errors import refusals_of

POINTS = 100_000  # of the curve of a run that counts epochs, unless a schedule counts iterations
NEVER = 10**9


@dataclass
class Curve:
    """The learning rate of a run, of a group of parameters without a factor of its own.

    Attributes:
        unit: 'epoch' or 'iteration', whichever the run counts. Places are numbers of them from the beginning.
        length: place where the run ends.
        end: place where its last schedule ends.
        points: place and rate of the beginning, of each turn, and of the last change.
        beyond: place and rate of the last change after the run, as far as it is computed; None without one.
        idle: numbers of the schedules that count epochs in a run that counts iterations, where they never move.
    """
    unit: str
    length: int
    end: float
    points: list[tuple[float, float]]
    beyond: tuple[float, float] | None
    idle: list[int]

    def place(self, number: float) -> str:
        """Return a place as text, such as 'epoch 7.5'."""
        return f'{self.unit} {round(number, 2):.7g}'

    def __str__(self) -> str:
        (_, first), *others = self.points
        texts = [f'{rate:.3g} at {self.place(place)}' for place, rate in others]
        if len(texts) > 6:
            texts[3:-1] = [f'{len(texts) - 4} more turns']
        return ', '.join([f'{first:.3g}' + (' at first' if texts else ' throughout'), *texts])


def train_loop(cfg: Config) -> type:
    """Return the class of a config's training loop."""
    if 'type' in cfg.train_cfg:
        return class_of(cfg.train_cfg, cfg, LOOPS) or object
    return EpochBasedTrainLoop if cfg.train_cfg.get('by_epoch') else IterBasedTrainLoop


def planned_rates(cfg: Config, loader: DataLoader) -> Curve | None:
    """Return the learning rates of a training that has not started.

    It is None with several optimizers, without a learning rate in the config, or in another loop than MMEngine's.

    Args:
        cfg: whole config.
        loader: of the training.
    """
    wrapper, scaling = cfg.get('optim_wrapper') or {}, cfg.get('auto_scale_lr') or {}
    lr, configs = (wrapper.get('optimizer') or {}).get('lr'), cfg.get('param_scheduler') or []
    configs = [configs] if isinstance(configs, dict) else configs
    by_epoch = issubclass(train_loop(cfg), EpochBasedTrainLoop)
    if lr is None or not (by_epoch or issubclass(train_loop(cfg), IterBasedTrainLoop)) or not all(
            'type' in config for config in configs):
        return None
    if scaling.get('enable'):
        images = get_world_size() * loader.batch_sampler.batch_size * wrapper.get('accumulative_counts', 1)
        lr *= images / scaling['base_batch_size']
    length = cfg.train_cfg.get('max_epochs' if by_epoch else 'max_iters')
    return learning_rates(configs, lr, by_epoch, length, len(loader)) if length else None


def learning_rates(configs: Sequence[dict[str, Any]], lr: float, by_epoch: bool, length: int, batches: int) -> Curve:
    """Return the learning rates of a run, by its schedules on an optimizer of one parameter.

    The schedules go on after the run until the last of them ends, or has reached its last milestone, its ``T_max`` or
    its ``total_steps``, for at most ``POINTS`` iterations. Where all count epochs, an epoch has fewer iterations here,
    so that the function takes a second at most.

    Args:
        configs: of ``param_scheduler``.
        lr: learning rate without schedules.
        by_epoch: whether the run counts epochs.
        length: epochs or iterations of the run.
        batches: iterations of an epoch.

    Raises:
        UserError: MMEngine refuses a schedule.
    """
    if by_epoch and all(config.get('by_epoch', True) for config in configs):
        batches = min(batches, 1 + POINTS // length)
    unit, epochs = (batches, length) if by_epoch else (1, 1)  # iterations of a unit; MMEngine counts one epoch
    iterations = length * unit
    wrapper = OptimWrapper(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr))
    schedules = {}
    for number, config in enumerate(configs):
        if config.get('param_name', 'lr') != 'lr':
            continue
        own = epochs if config.get('by_epoch', True) else iterations
        begin, end = config.get('begin', 0), config.get('end', own)
        if begin < end >= own:  # what it does after the run is of interest
            lasting = config.get('T_max') or config.get('total_steps') or 0
            end = max([end, begin + lasting, *(begin + step + 1 for step in config.get('milestones', ()))])
        with refusals_of(f'param_scheduler.{number}={dict(config)}'):
            schedules[number] = PARAM_SCHEDULERS.build(
                dict(config, end=end), default_args=dict(optimizer=wrapper, epoch_length=batches))
    schedules = {number: schedule for number, schedule in schedules.items() if schedule.param_name == 'lr'}
    end = max((schedule.end * (batches if schedule.by_epoch else 1) for schedule in schedules.values()),
              default=iterations)
    computed = max(iterations, min(end, max(2 * iterations, POINTS)))
    changes = [(step / unit, rate) for step, rate in advance(
        schedules.values(), wrapper.param_groups[0], computed, batches if by_epoch else NEVER)]
    inside = [(place, rate) for place, rate in changes if place < length]
    turns = [point for before, point, after in zip(inside, inside[1:], inside[2:])
             if (point[1] > before[1]) != (after[1] > point[1])]
    return Curve('epoch' if by_epoch else 'iteration', length, end / unit,
                 [*inside[:1], *turns, *inside[1:][-1:]], changes[-1] if len(changes) > len(inside) else None,
                 [number for number, schedule in schedules.items()  # ReduceOnPlateauLR counts evaluations
                  if schedule.by_epoch and not by_epoch and not hasattr(schedule, 'need_val_args')])


def advance(schedules: Iterable[Any], group: dict[str, Any], iterations: int, epoch_length: int,
            epochs: int = NEVER) -> list[tuple[int, float]]:
    """Step schedules as MMEngine's ``ParamSchedulerHook`` does after each iteration and each epoch.

    After the end of the schedules that count iterations, only the ends of epochs are visited.

    Args:
        schedules: at their beginning.
        group: a group of parameters that they change.
        iterations: number of iterations.
        epoch_length: iterations of an epoch; :data:`NEVER` in a loop that counts iterations.
        epochs: number of epochs that have ended, if it is less than the iterations tell.

    Returns:
        The learning rates of ``group``, each with the number of iterations after which it holds.
    """
    ordered = sorted(schedules, key=lambda schedule: schedule.by_epoch)  # MMEngine steps these at the end of an epoch
    busy = min(iterations, max((schedule.end for schedule in ordered if not schedule.by_epoch), default=0))
    changes = [(0, group['lr'])]
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # no step of an optimizer comes before these
        for iteration in chain(range(1, busy + 1),
                               range((busy // epoch_length + 1) * epoch_length, iterations + 1, epoch_length)):
            for schedule in ordered:
                if not schedule.by_epoch or iteration % epoch_length == 0 and iteration <= epochs * epoch_length:
                    schedule.step()
            if not isclose(group['lr'], changes[-1][1], rel_tol=1e-6, abs_tol=1e-12):
                changes.append((iteration, group['lr']))
    return changes


def data_shape(runner: Runner) -> dict[str, int]:
    """Return the numbers that determine the images of an iteration, as a checkpoint's ``meta`` records them."""
    loader = runner.train_dataloader
    return dict(
        world_size=runner.world_size,
        batch_size=loader.batch_sampler.batch_size,
        accumulative_counts=(runner.cfg.get('optim_wrapper') or {}).get('accumulative_counts', 1),
        batches_per_epoch=len(loader))
