"""Log the result of a training at its end."""
import os
import shlex

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner

from ...commands import command
from ...curves import Curves, place
from ...registry import HOOKS
from ..checkpoint.files import find_checkpoint


@HOOKS.register_module()
class SummaryHook(Hook):
    """Log the last and best metric with their files, and commands to view the results, when training ends.

    The best is that of ``save_best``, or else of the task's main metric.
    """

    priority = 'VERY_LOW'

    def after_train(self, runner: Runner) -> None:
        if is_main_process():
            runner.logger.info('\n  '.join(summary(runner)))


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
        lines.append(f'predict: {command("predict")} {files} IMAGE_OR_FOLDER --out-dir '
                     f'{shlex.quote(os.path.join(folder, "predictions"))}')
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


def _short(path: str) -> str:
    """Return a path relative to the current folder, if it is inside."""
    relative = os.path.relpath(path)
    return os.path.abspath(path) if relative.startswith('..') else relative
