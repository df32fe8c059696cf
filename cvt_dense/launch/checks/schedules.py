"""Compare schedules of the learning rate with the length of the training."""
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config
from mmengine.logging import print_log

from ...errors import UserError
from ...nodes import type_name
from .run import Run


def check_schedules(cfg: Config, run: Run) -> None:
    """Compare where each schedule begins and ends with the length of the training.

    A run that is shorter or longer than its schedule gets a line in the log with the settings for a schedule of its
    own length; so does one whose last part would be trained at rate 0.

    Raises:
        UserError: if a schedule ends before it begins, or is a warm-up of one iteration, which never leaves its
            first rate.
    """
    if 'train' not in run.stages:
        return
    loop = cfg.get('train_cfg') or {}
    by_epoch = 'max_epochs' in loop
    length = loop.get('max_epochs' if by_epoch else 'max_iters')
    unit = 'epochs' if by_epoch else 'iterations'
    schedules = list(schedules_of(cfg))
    last = max((schedule.get('end') or 0 for _, schedule in schedules
                if schedule.get('by_epoch', True) == by_epoch), default=0)
    for place, schedule in schedules:
        begin, end = schedule.get('begin', 0), schedule.get('end')
        if end is not None and end <= begin:
            raise UserError(f'{place}.end={end}: allowed is more than {place}.begin={begin}.')
        if end is not None and end - begin == 1 and not _counts_epochs(schedule) and _is_warmup(schedule):
            raise UserError(f'{place}: a warm-up of one iteration stays at start_factor={schedule["start_factor"]}; '
                            'give it two or more, or leave it out.')
        if not isinstance(length, (int, float)) or end != last or schedule.get('by_epoch', True) != by_epoch:
            continue
        settings = ' '.join(f'{place}.{key}={value}' for key, value in fitted(schedule, length).items())
        if settings and end < length and _ends_at_zero(schedule):
            print_log(f'{place} ends at {end} of {length} {unit}, and the rest has the learning rate 0. For a schedule '
                      f'of the whole length give --cfg-options {settings}', logger='current', level=30)
        elif settings and not cfg.get('resume'):
            print_log(f'{place} does not end with the training of {length} {unit}. For a schedule of that length give '
                      f'--cfg-options {settings}', logger='current', level=30)


def schedules_of(cfg: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each schedule of the learning rate and its place in the config."""
    schedules = cfg.get('param_scheduler') or []
    for i, schedule in enumerate([schedules] if 'type' in schedules else schedules):
        if isinstance(schedule, dict):
            yield ('param_scheduler' if 'type' in schedules else f'param_scheduler.{i}'), schedule


def fitted(schedule: dict[str, Any], length: int) -> dict[str, Any]:
    """Return the settings that let a schedule which lasts to the end of a training fit one of ``length``.

    Warm-ups are left as they are, and so is a schedule that fits already.
    """
    begin, end, kind = schedule.get('begin', 0), schedule.get('end'), type_name(schedule)
    if end is None or end == length or begin >= length:
        return {}
    if kind in ('PolyLR', 'CosineAnnealingLR'):
        period = schedule.get('T_max')
        return dict(end=length) if period is None else dict(end=length, T_max=length - begin)
    if kind == 'MultiStepLR':
        milestones = [max(1, milestone * length // end) for milestone in schedule['milestones']]
        return dict(end=length, milestones=str(milestones).replace(' ', ''))
    return {}


def _counts_epochs(schedule: dict[str, Any]) -> bool:
    return schedule.get('by_epoch', True)


def _is_warmup(schedule: dict[str, Any]) -> bool:
    return type_name(schedule) == 'LinearLR' and schedule.get('start_factor', 1 / 3) < schedule.get('end_factor', 1)


def _ends_at_zero(schedule: dict[str, Any]) -> bool:
    return type_name(schedule) != 'MultiStepLR' and not schedule.get('eta_min') and not schedule.get('eta_min_ratio')
