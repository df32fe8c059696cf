"""Manage work directories: one training in each, and its tests in ``test/`` inside."""
import argparse
import os
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout
from mmengine.config import Config
from mmengine.logging import print_log

from ..config.walk import values
from ..errors import UserError, listed

TEST = 'test'
CHECKPOINTS = ('last_checkpoint', 'preempted.pth', 'epoch_*.pth', 'iter_*.pth', 'best_*.pth')
LOCK = 'training.lock'
LAUNCH = 'training.launch'  # beside the lock, whose content is filelock's
PATIENCE = 20.  # seconds that a start waits for the processes of a training that is just ending
_locks: dict[Path, FileLock] = {}  # by folder; held until this process ends


def traces_of_training(folder: str | Path) -> list[str]:
    """Return the names of checkpoints and curves in ``folder``; a run that ended before its first log line has none."""
    traces = [path for pattern in CHECKPOINTS for path in sorted(Path(folder).glob(pattern))]
    traces += [path for path in sorted(Path(folder).glob('*/vis_data/scalars.json')) if path.stat().st_size]
    return [str(path.relative_to(folder)) for path in traces]


def test_folder(cfg: Config, flags: argparse.Namespace) -> str:
    """Return where a test of ``flags.checkpoint`` writes: ``test/`` in --work-dir, by default in the checkpoint's run.

    A checkpoint that lies in no run, such as a downloaded one, is tested in the config's ``work_dir``.
    """
    run = os.path.dirname(flags.checkpoint)
    if flags.work_dir is not None or '://' in flags.checkpoint or not traces_of_training(run or '.'):
        run = cfg.work_dir
    return run if os.path.basename(os.path.normpath(run)) == TEST else os.path.join(run, TEST)


def check_work_dir(cfg: Config, flags: argparse.Namespace) -> None:
    """Refuse to train in a folder that holds another run, which is neither continued nor moved aside.

    Raises:
        UserError: the folder holds another run, or a config of no run under the same name, or --overwrite would move
            weights or data that the config names.
    """
    traces, folder = traces_of_training(cfg.work_dir), os.path.realpath(cfg.work_dir)
    for key, text in values(cfg.to_dict()) if flags.overwrite else ():
        inside = isinstance(text, str) and os.path.realpath(text).startswith(os.path.join(folder, ''))
        if inside and os.path.exists(text):
            raise UserError(f'--overwrite would move {key}={text!r} away: choose another --work-dir.')
    continued = flags.resume and (flags.resume == 'auto' or os.path.dirname(os.path.realpath(flags.resume)) == folder)
    if traces and not (flags.overwrite or continued or _has_begun(cfg.work_dir)):
        raise UserError(f'{cfg.work_dir!r} holds another run ({listed(traces, 3)}). Continue it with --resume, choose '
                        'another folder with --work-dir, or move it aside with --overwrite.')
    dump = Path(cfg.work_dir, os.path.basename(cfg.filename))
    if dump.exists() and not dump.samefile(cfg.filename) and not (traces or (dump.parent / LAUNCH).exists()):
        raise UserError(f'The saved config of this run would replace {str(dump)!r}: choose another --work-dir.')


def lock_work_dir(cfg: Config, flags: argparse.Namespace) -> None:
    """Lock the folder of a training until this process ends, and with ``--overwrite`` move an older run aside.

    Raises:
        UserError: another training has locked the folder; or see :func:`check_work_dir`.
    """
    folder = Path(cfg.work_dir).resolve()  # a link to a folder on another disk is kept
    folder.mkdir(parents=True, exist_ok=True)
    has_begun = _has_begun(folder)
    try:
        _locks.setdefault(folder, FileLock(folder / LOCK)).acquire(timeout=PATIENCE)
    except Timeout:
        raise UserError(f'another training runs in {cfg.work_dir!r}: choose another --work-dir, or wait.') from None
    except OSError as error:
        print_log(f'{cfg.work_dir!r} is not locked against a second training: {error}.', logger='current', level=30)
    check_work_dir(cfg, flags)  # again, because a run that was ending may have saved meanwhile
    if flags.overwrite and not has_begun and traces_of_training(folder):
        older = next(path for path in (Path(f'{folder}.old{number}') for number in count(1)) if not path.exists())
        older.mkdir()
        for path in folder.iterdir():
            if path.name != LOCK:
                path.rename(older / path.name)
        print_log(f'--overwrite: the earlier run was moved to {str(older)!r}.', logger='current', level=30)
    (folder / LAUNCH).write_text(_launch())


def resumed_checkpoint(cfg: Config, checkpoint: str | None) -> str | None:
    """Return what a run continues from: ``checkpoint``, or with 'auto' the last complete one in the work dir.

    A process that torchrun has started again after a crash (``--max-restarts``) always continues from the work dir.
    Where that holds no checkpoint yet, the run starts from its beginning, and the log reports it.
    """
    path = None if checkpoint == 'auto' else checkpoint
    if checkpoint == 'auto' or _restarts():
        from ..engine.checkpoint import find_checkpoint  # imports PyTorch
        path = find_checkpoint(cfg.work_dir) or path
        if path is None:
            print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.', logger='current',
                      level=30)
    return path


def _restarts() -> int:
    """Return how often torchrun has started this process again."""
    return int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0))


def _has_begun(folder: str | Path) -> bool:
    """Return whether torchrun has started this process again, after a crash of the run that it began in ``folder``.

    torchrun also restarts a process that refused to start, which must not resume the run that made it refuse.
    """
    launch = Path(folder, LAUNCH)
    return _restarts() > 0 and launch.exists() and launch.read_text() == _launch()


def _launch() -> str:
    """Return a name that is the same for all starts of a torchrun call, which is the parent of its processes."""
    return f'{os.environ.get("TORCHELASTIC_RUN_ID", "")} {os.getppid()}'
