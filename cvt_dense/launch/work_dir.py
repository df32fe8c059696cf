"""Manage work directories: one training in each, and its tests in ``test/`` inside."""
import os
from itertools import count
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log

from ..config import values
from ..errors import UserError, listed
from .runs import TrainRun

TEST = 'test'  # the folder of a run's tests in its work_dir
CHECKPOINTS = ('last_checkpoint', 'preempted.pth', 'epoch_*.pth', 'iter_*.pth', 'best_*.pth')


def traces_of_training(folder: str | Path) -> list[str]:
    """Return the names of checkpoints and curves in ``folder``; a run that ended before its first log line has none."""
    traces = [path for pattern in CHECKPOINTS for path in sorted(Path(folder).glob(pattern))]
    traces += [path for path in sorted(Path(folder).glob('*/vis_data/scalars.json')) if path.stat().st_size]
    return [str(path.relative_to(folder)) for path in traces]


def claim(cfg: Config, run: TrainRun) -> str | None:
    """Check that a training may use its folder, and return the checkpoint that it continues from, if any.

    With 'auto' that is the last complete one of the folder. A process that torchrun has started again after a crash
    (``--max-restarts``) always continues what the folder holds. Nothing is written.

    Raises:
        UserError: the folder holds another run, which is neither continued nor moved aside, or a config of no run under
            the same name; or ``overwrite`` would move weights or data away that the config names.
    """
    traces, folder = traces_of_training(cfg.work_dir), os.path.realpath(cfg.work_dir)
    restarted = int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)) > 0
    resume = str(run.resume or (cfg.get('resume') and (cfg.get('load_from') or 'auto')) or '')
    for key, text in values(cfg.to_dict()) if run.overwrite else ():
        inside = isinstance(text, str) and os.path.realpath(text).startswith(os.path.join(folder, ''))
        if inside and os.path.exists(text):
            raise UserError(f'--overwrite would move {key}={text!r} away: choose another --work-dir.')
    continued = restarted or resume and (resume == 'auto' or os.path.dirname(os.path.realpath(resume)) == folder)
    if traces and not (run.overwrite or continued):
        raise UserError(f'{cfg.work_dir!r} holds another run ({listed(traces, 3)}). Continue it with --resume, choose '
                        'another folder with --work-dir, or move it aside with --overwrite.')
    dump = Path(cfg.work_dir, os.path.basename(cfg.filename))
    begun = traces or restarted or any(dump.parent.glob('*/*.log'))  # a run that ended before its first log line
    if dump.exists() and not dump.samefile(cfg.filename) and not begun:
        raise UserError(f'The saved config of this run would replace {str(dump)!r}: choose another --work-dir.')
    checkpoint = None if resume == 'auto' else resume or None
    if resume == 'auto' or restarted:
        from ..engine.checkpoint import find_checkpoint  # imports PyTorch
        checkpoint = find_checkpoint(cfg.work_dir) or checkpoint
        if checkpoint is None:
            print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.', logger='current',
                      level=30)
    return checkpoint


def move_aside(folder: str) -> None:
    """Move an older run in ``folder`` to ``folder.old1`` and so on, unless torchrun has started this process again."""
    path = Path(folder).resolve()  # a link to a folder on another disk is kept
    if traces_of_training(path) and not int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)):
        older = next(other for other in (Path(f'{path}.old{number}') for number in count(1)) if not other.exists())
        older.mkdir()
        for inside in path.iterdir():
            inside.rename(older / inside.name)
        print_log(f'--overwrite: the earlier run was moved to {str(older)!r}.', logger='current', level=30)
