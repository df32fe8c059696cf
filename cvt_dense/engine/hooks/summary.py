"""Log the result of a training at its end, and the settings that resuming has overridden at its start."""
import os
import shlex
from typing import Any

import numpy as np
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner

from ...commands import command
from ...curves import Curves, place
from ...registry import HOOKS
from ..checkpoint.files import find_checkpoint
from ..checkpoint.resume import data_shape


@HOOKS.register_module()
class SummaryHook(Hook):
    """Log the last and best metric with their files, and commands to view the results, when training ends.

    The best is that of ``save_best``, or else of the task's main metric. A run that was resumed with other settings of
    the optimizer or its schedules than the checkpoint's, which are restored, logs the settings that have no effect.
    """

    priority = 'VERY_LOW'

    def __init__(self):
        self.trained = False
        self.ignored: list[str] = []

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict[str, Any]) -> None:
        if not isinstance(runner.optim_wrapper, dict | None):  # built: the run will train
            self.ignored = _ignored(runner, checkpoint)

    def before_train(self, runner: Runner) -> None:
        if runner.iter > 0 and self.ignored:
            runner.logger.warning(
                f'--resume restores optimizer and schedules as they were saved, so these settings have no effect: '
                f'{", ".join(self.ignored)}. To train on with them, start another run from these weights: '
                '--work-dir OTHER --cfg-options load_from=CHECKPOINT, without --resume.')

    def after_train(self, runner: Runner) -> None:
        self.trained = True

    def after_run(self, runner: Runner) -> None:
        if self.trained and is_main_process():
            runner.logger.info('\n  '.join(summary(runner)))


def _ignored(runner: Runner, checkpoint: dict[str, Any]) -> list[str]:
    """Return the settings that a run which resumes ``checkpoint`` takes from the checkpoint.

    The built optimizer and schedules are compared, not the configs, since the text of a checkpoint's config is code.
    What follows from another batch size is not listed.
    """
    meta, cfg = checkpoint.get('meta', {}), runner.cfg.optim_wrapper
    now = getattr(getattr(runner.optim_wrapper, 'optimizer', None), 'param_groups', [])
    saved = (checkpoint.get('optimizer') or {}).get('param_groups', [])
    if len(now) != len(saved):
        return []  # several optimizers, or another one, which fails when it is loaded
    same_batch = all(meta.get(key, value) == value for key, value in data_shape(runner).items()
                     if key != 'batches_per_epoch')
    ignored = []
    for key in ('lr', 'weight_decay', 'momentum', 'betas'):
        pairs = [_pair(group, old, key) for group, old in zip(now, saved) if key in group and key in old]
        pair = next((pair for pair in pairs if not np.allclose(*pair, rtol=1e-6, atol=0)), None)
        if pair is not None and (key != 'lr' or same_batch):
            given = cfg.optimizer.get(key, pair[0])  # of the learning rate before it is scaled to batch and layer
            stays = float(f'{given * pair[1] / pair[0]:.6g}') if key == 'lr' else pair[1]
            ignored.append(f'optim_wrapper.optimizer.{key}={given} (it stays {stays})')
    schedules, old = runner.param_schedulers or [], checkpoint.get('param_schedulers') or []
    # Where one of them has no schedule there is nothing to restore: the new settings take effect.
    if schedules and old and isinstance(schedules, list) and same_batch and (
            [_shape(schedule.state_dict()) for schedule in schedules] != [_shape(state) for state in old]):
        ignored.append('param_scheduler')
    return ignored


def _pair(now: dict[str, Any], saved: dict[str, Any], key: str) -> tuple[Any, Any]:
    """Return what two groups of an optimizer begin with; a schedule, if there is one, keeps that as ``initial_...``."""
    initial = f'initial_{key}'
    return now.get(initial, now[key]), saved[initial if initial in now and initial in saved else key]


def _shape(schedule: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a schedule's state that describes its form, without its progress and its initial value."""
    return {key: value for key, value in schedule.items()
            if not key.startswith('_') and key not in ('base_values', 'last_step', 'verbose')}


def summary(runner: Runner) -> list[str]:
    """Return the lines of the summary; the first one is a title."""
    folder = _short(runner.work_dir)
    last = find_checkpoint(runner.work_dir)
    best = _best_of_save_best(runner)
    lines = [f'The run in {folder} is complete.']
    try:
        curves = Curves(runner.work_dir)
    except FileNotFoundError:  # no backend that writes them, or no record
        curves = None
    metrics = curves.main_metrics() if curves else []
    values = ', '.join(f'{name} {curves.last(name).values[name]:.4g}' for name in metrics)
    at = f' ({place(curves.last(metrics[0]))})' if metrics else ''
    lines.append(f'last:    {values or "no evaluation"}{at}, {_short(last) if last else "no checkpoint"}')
    if best is not None:
        lines.append(f'best:    {best[0]} {best[1]:.4g}, {_short(best[2])}')
    elif metrics and (point := curves.best(metrics[0])) is not None:
        lines.append(f'best:    {metrics[0]} {point.values[metrics[0]]:.4g} ({place(point)}); '
                     f'default_hooks.checkpoint.save_best={metrics[0]} would have kept it')
    checkpoint = best[2] if best else last
    lines.append(f'log:     {_short(runner.logger.log_file)}')
    if curves:
        lines.append(f'curves:  {_short(os.path.join(runner.log_dir, "vis_data", "scalars.json"))}')
        lines.append(f'plot:    {command("plot")} {shlex.quote(folder)}')
    config = os.path.join(runner.work_dir, os.path.basename(runner.cfg.filename or ''))
    if os.path.isfile(config):
        lines.append(f'browse:  {command("browse")} {shlex.quote(_short(config))}')
    if checkpoint and os.path.isfile(config):
        files = f'{shlex.quote(_short(config))} {shlex.quote(_short(checkpoint))}'
        if runner.cfg.get('test_dataloader') is not None:
            lines.append(f'test:    {command("test")} {files}')
        if runner.val_loop is not None:
            lines.append(f'errors:  {command("diagnose")} {files}')
        pictures = shlex.quote(os.path.join(folder, 'predictions'))
        lines.append(f'predict: {command("predict")} {files} {shlex.quote(_images(runner))} --out-dir {pictures}')
    return lines


def _best_of_save_best(runner: Runner) -> tuple[str, float, str] | None:
    """Return metric, value and file of the best checkpoint, or None if none was kept."""
    hook = next((hook for hook in runner.hooks if isinstance(hook, CheckpointHook)), None)
    info = runner.message_hub.runtime_info
    for metric in getattr(hook, 'key_indicators', None) or ():
        suffix = '' if len(hook.key_indicators) == 1 else f'_{metric}'
        path = str(info.get(f'best_ckpt{suffix}', ''))
        if os.path.isfile(path):
            return metric, float(info[f'best_score{suffix}']), path
    return None


def _images(runner: Runner) -> str:
    """Return the folder of the images that were evaluated, or else of training; the parent of class folders."""
    dataset = (runner.train_dataloader if runner.val_loop is None else runner.val_dataloader).dataset
    folder = ''
    if hasattr(dataset, 'get_data_info'):  # MMEngine's data sets and their wrappers
        ends = [dataset.get_data_info(i).get('img_path') or '' for i in (0, len(dataset) - 1)]
        folder = os.path.commonpath([os.path.dirname(path) for path in ends])
    return _short(folder) if os.path.isdir(folder) else 'IMAGE_OR_FOLDER'


def _short(path: str) -> str:
    """Return a path relative to the current folder, if it is inside."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith('..') else relative
