"""Log an early first line of a training, and its result at its end."""
import shlex
import time
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook, LoggerHook
from mmengine.runner import Runner

from ...curves import Curves, position
from ...metrics import best_file
from ...recipes import command
from ...registry import HOOKS
from ..checkpoint.files import find_checkpoint

EARLY = 10  # seconds to the first line; on a slow machine, the logger's takes minutes


@HOOKS.register_module()
class SummaryHook(Hook):
    """Log an early line with the time that remains (``eta``), and at the end the best metrics and further commands."""

    priority = 'VERY_LOW'

    def before_train(self, runner: Runner) -> None:
        self.begin, self.first = time.monotonic(), runner.iter

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        if self.begin is not None and time.monotonic() - self.begin >= EARLY:
            self.begin = None
            intervals = [hook.interval for hook in runner.hooks if isinstance(hook, LoggerHook)]
            if runner.iter - self.first + 1 < min(intervals, default=0):
                runner.logger.info(runner.log_processor.get_log_after_iter(runner, batch_idx, 'train')[1])

    def after_train(self, runner: Runner) -> None:
        if is_main_process():
            runner.logger.info('\n  '.join(summary(runner)))


def summary(runner: Runner) -> list[str]:
    """Return the lines of the summary; the first one is a title."""
    folder, checkpoint = runner.work_dir, find_checkpoint(runner.work_dir) or 'no checkpoint'
    lines, last = [f'The run in {_short(folder)} is complete.'], checkpoint
    curves = Curves(folder, allow_none=True)  # a training may be shorter than the logger's interval
    for name in curves.main_metrics():
        point = curves.last(name)
        lines.append(f'last:    {name} {point.values[name]:.4g} ({position(point)}), {_short(last)}')
        best, (kept, _) = curves.best(name), best_file(folder, name) or (None, None)
        if best is not None:
            lines.append(f'best:    {name} {best.values[name]:.4g}, {_short(kept) if kept else position(best)}')
        checkpoint = kept or checkpoint
    files = [_short(Path(folder, Path(runner.cfg.filename or 'config.py').name)), _short(checkpoint)]
    commands = [('test', 'test', files)] if runner.cfg.get('test_dataloader') else []
    commands += [('errors', 'diagnose', files)] if runner.val_loop else []
    commands += [('predict', 'predict', [*files, 'IMAGE_OR_FOLDER', '--out-dir', _short(Path(folder, 'predictions'))])]
    return lines + [f'{label + ":":<9}{command(tool)} {shlex.join(words)}' for label, tool, words in commands]


def _short(path: str | Path) -> str:
    """Return a path relative to the current folder, if it is inside."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
