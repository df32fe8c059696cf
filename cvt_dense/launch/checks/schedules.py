"""Check the schedules of the learning rate against the length of the training."""
from collections.abc import Sequence

from mmengine.config import Config
from mmengine.logging import print_log

from ...nodes import type_name


def check_schedules(cfg: Config, stages: Sequence[str]) -> None:
    """Log a warning where a warm-up is longer than the training."""
    loop = cfg.get('train_cfg') or {}
    unit = 'max_epochs' if loop.get('max_epochs') else 'max_iters'
    schedules = cfg.get('param_scheduler') or []
    for i, schedule in enumerate([schedules] if isinstance(schedules, dict) else schedules):
        same_unit = isinstance(schedule, dict) and schedule.get('by_epoch', True) == (unit == 'max_epochs')
        if 'train' in stages and same_unit and type_name(schedule) == 'LinearLR' and loop.get(unit):
            if (schedule.get('end') or 0) > loop[unit]:
                print_log(f'param_scheduler.{i}.end={schedule["end"]}: the warm-up is longer than the training, '
                          f'train_cfg.{unit}={loop[unit]}.', logger='current', level=30)
