"""Settings that cannot be meant, whether a config's file or the command line says so: found before work starts."""
import difflib
import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mmengine.config import Config

from ..errors import UserError
from .overrides import CONSUMED, known_keys, values


class Allowed(NamedTuple):
    """What a value may be: in words, and as a function of numbers."""
    words: str
    test: Callable[[float], bool]
    whole: bool = False


COUNT = Allowed('a whole number, 1 or more', lambda value: value >= 1, True)
NATURAL = Allowed('a whole number, 0 or more', lambda value: value >= 0, True)
INTERVAL = Allowed('a whole number, 1 or more, or -1 for never', lambda value: value >= 1 or value == -1, True)
LIMIT = Allowed('a whole number, 1 or more, or -1 for no limit', lambda value: value >= 1 or value == -1, True)
POSITIVE = Allowed('a number above 0', lambda value: value > 0)
NOT_NEGATIVE = Allowed('a number, 0 or more', lambda value: value >= 0)
SHARE = Allowed('a number from 0 to 1', lambda value: 0 <= value <= 1)
FACTOR = Allowed('a number above 0, 1 at most', lambda value: 0 < value <= 1)
MOMENTUM = Allowed('a number, 0 or more and below 1', lambda value: 0 <= value < 1)

# What a path of a config may be, whoever reads it. None is a matter of who reads it.
RULES = [(re.compile(pattern), allowed) for pattern, allowed in (
    (r'\w+_dataloader\.batch_size', COUNT),
    (r'\w+_dataloader\.num_workers', NATURAL),
    (r'\w+_dataloader\.dataset(\.\w+)*\.times', COUNT),
    (r'(\w+_dataloader|\w*pipeline)(\.\w+)*\.(scales?|input_size|crop_size)(\.\d+)*', POSITIVE),
    (r'train_cfg\.(max_epochs|max_iters|val_interval)', COUNT),
    (r'train_cfg\.val_begin', NATURAL),
    (r'optim_wrapper\.optimizer\.lr', POSITIVE),
    (r'optim_wrapper\.optimizer\.weight_decay', NOT_NEGATIVE),
    (r'optim_wrapper\.optimizer\.(momentum|betas\.\d)', MOMENTUM),
    (r'optim_wrapper\.accumulative_counts', COUNT),
    (r'optim_wrapper\.clip_grad\.max_norm', POSITIVE),
    (r'auto_scale_lr\.base_batch_size', COUNT),
    (r'param_scheduler(\.\d+)?\.(T_max|end)', POSITIVE),
    (r'param_scheduler(\.\d+)?\.begin', NOT_NEGATIVE),
    (r'param_scheduler(\.\d+)?\.(start_factor|end_factor|factor)', FACTOR),
    (r'default_hooks\.checkpoint\.(interval|max_keep_ckpts)', INTERVAL),
    (r'default_hooks\.logger\.interval', COUNT),
    (r'randomness\.seed', NATURAL),
    (r'model(\.\w+)*\.num_classes', COUNT),
    (r'model\.backbone\.in_channels', COUNT),
    (r'model(\.\w+)*\.max_per_img', LIMIT),
    (r'model(\.\w+)*\.(score_thr|iou_threshold|drop_rate|drop_path_rate|attn_drop_rate|dropout_ratio)', SHARE))]

# Settings whose keys are all known, besides data loaders. A test reads none of TRAINING.
KNOWN = ('train_cfg', 'val_cfg', 'test_cfg', 'optim_wrapper', 'optim_wrapper.optimizer', 'auto_scale_lr', 'randomness')
TRAINING = ('train_cfg', 'train_dataloader', 'val_dataloader', 'val_cfg', 'optim_wrapper', 'auto_scale_lr',
            'param_scheduler', 'default_hooks')


def check_numbers(cfg: Config, stages: list[str]) -> None:
    """Checks the numbers that runs fail with, or come to nothing with.

    Args:
        cfg: complete config.
        stages: the data loaders that the run uses; without 'train', what only a training reads is left alone.

    Raises:
        UserError: a value out of range.
    """
    for path, value in values(_read(cfg, stages)):
        allowed = next((allowed for pattern, allowed in RULES if pattern.fullmatch(path)), None)
        if allowed is not None and value is not None and not isinstance(value, (dict, list, tuple)):
            check_value(path, value, allowed, 'Set it in the config or after --cfg-options.')
    if 'train' in stages:
        _check_schedules(cfg)


def _check_schedules(cfg: Config) -> None:
    """MMEngine refuses a schedule that ends before it begins, as a long warm-up in a short training makes one."""
    schedules = cfg.get('param_scheduler') or []
    for place, schedule in enumerate([schedules] if isinstance(schedules, dict) else schedules):
        begin, end = (schedule.get(key) for key in ('begin', 'end'))
        if begin is not None and end is not None and end <= begin:
            raise UserError(f'param_scheduler.{place}: it begins at {begin} and ends at {end}, so it never runs. '
                            'Shorten the warm-up before it, or train for longer.')


def check_keys(cfg: Config, stages: list[str]) -> None:
    """Checks for keys that nothing reads, where it is known what is; imports what reads them.

    Args: those of :func:`check_numbers`.

    Raises:
        UserError: a key that does not exist.
    """
    settings = _read(cfg, stages)
    for path in [*KNOWN, *(key for key in settings if key.endswith('_dataloader'))]:
        _check_keys(cfg, settings, path)


def _read(cfg: Config, stages: list[str]) -> dict[str, Any]:
    unread = () if 'train' in stages else TRAINING
    return {key: value for key, value in cfg.to_dict().items() if key not in unread}


def check_value(name: str, value: Any, allowed: Allowed, remedy: str = '') -> None:
    """
    Args:
        name: of the setting or flag, as the user writes it.
        value: given.
        allowed: what may be given.
        remedy: what to do, a sentence.

    Raises:
        UserError: it may not.
    """
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (allowed.whole and not isinstance(value, int)) or not allowed.test(value):
        raise UserError(f'{name}={value!r}: it must be {allowed.words}. {remedy}'.strip())


def _check_keys(cfg: Config, settings: dict[str, Any], path: str) -> None:
    parts, node = path.split('.'), settings
    for part in parts:
        node = node.get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        return
    known, sure = known_keys(cfg, node, parts, node, None)
    for key in node:
        if sure and known and key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.6)
            hint = f'Did you mean {path}.{near[0]}?' if near else f'Known there: {", ".join(sorted(known - CONSUMED))}.'
            raise UserError(f'{path}.{key}={node[key]!r}: {path} has no {key!r}, and nothing reads it. {hint}')
