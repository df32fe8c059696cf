"""Log the result of a training at its end."""
import shlex
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...curves import Curves, position
from ...metrics import best_file
from ...recipes import command
from ...registry import HOOKS
from ..checkpoint.files import find_checkpoint


@HOOKS.register_module()
class SummaryHook(Hook):
    """Log at the end of a training its last and best metrics and further commands."""

    priority = 'VERY_LOW'

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
    commands = [('plot', 'plot', [_short(folder)]), ('browse', 'browse', files[:1])]
    commands += [('test', 'test', files)] if runner.cfg.get('test_dataloader') else []
    commands += [('errors', 'diagnose', files)] if runner.val_loop else []
    commands += [('predict', 'predict', [*files, 'IMAGE_OR_FOLDER', '--out-dir', _short(Path(folder, 'predictions'))])]
    return lines + [f'{label + ":":<9}{command(tool)} {shlex.join(words)}' for label, tool, words in commands]


def _short(path: str | Path) -> str:
    """Return a path relative to the current folder, if it is inside."""
    path = Path(path).absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
