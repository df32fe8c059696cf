"""Manage work directories: one training in each, and its tests in ``test/`` inside."""
import argparse
import fcntl
import os
import time
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import walk
from .distributed import is_first_process

TEST = 'test'
CHECKPOINTS = ('last_checkpoint', 'epoch_*.pth', 'iter_*.pth', 'best_*.pth', 'preempted.pth')
LOCK = 'training.lock'
PATIENCE = 20.  # seconds that a start waits for the processes of a training that is just ending


def traces_of_training(folder: str | Path) -> list[str]:
    """Return the names of checkpoints and curves in ``folder``; a run that ended before its first log line has none."""
    found = [path for pattern in CHECKPOINTS for path in sorted(Path(folder).glob(pattern))]
    found += [path for path in sorted(Path(folder).glob('*/vis_data/scalars.json')) if path.stat().st_size]
    return [str(path.relative_to(folder)) for path in found]


def test_folder(cfg: Config, args: argparse.Namespace) -> str:
    """Return where a test of ``args.checkpoint`` writes: ``test/`` in --work-dir, or else in the checkpoint's run.

    A checkpoint that lies in no run, such as a downloaded one, is tested in the config's ``work_dir``.
    """
    run = os.path.dirname(args.checkpoint)
    if args.work_dir is not None or '://' in args.checkpoint or not traces_of_training(run or '.'):
        run = cfg.work_dir
    return run if os.path.basename(os.path.normpath(run)) == TEST else os.path.join(run, TEST)


# -- one training in a folder ------------------------------------------------------------------------


def check_work_dir(cfg: Config, args: argparse.Namespace) -> None:
    """Refuse to train in a folder that holds another run; called in the first process, for all.

    This check passes if the run continues the old one (``--resume``, a process that torchrun started again), and with
    ``--overwrite``, unless a file that the run needs would be moved aside.

    Raises:
        UserError: if the folder holds another run, or what is to be moved aside is needed.
    """
    found = traces_of_training(cfg.work_dir)
    if not found or args.resume is not None or cfg.get('resume') or was_restarted():
        return
    if not args.overwrite:
        more = f' and {len(found) - 3} more' if len(found) > 3 else ''
        raise UserError(f'{cfg.work_dir!r} holds another run ({", ".join(found[:3])}{more}), with which this one would '
                        'be mixed. Continue that run with --resume, choose another folder with --work-dir, or move '
                        'that run aside with --overwrite.')
    inside = os.path.join(os.path.realpath(cfg.work_dir), '')
    needed = {f'{path}.{key}'.lstrip('.'): value for path, node in walk(cfg.to_dict()) for key, value in node.items()
              if isinstance(value, str) and os.path.exists(value) and os.path.realpath(value).startswith(inside)}
    if os.path.join(os.path.realpath(os.getcwd()), '').startswith(inside):
        needed['the current folder'] = os.getcwd()
    for name, value in needed.items():
        raise UserError(f'--overwrite would move {cfg.work_dir!r} aside with what this run needs: {name} is {value!r}. '
                        'Choose another --work-dir.')


def claim(cfg: Config, args: argparse.Namespace) -> None:
    """Take the folder for a checked training: lock it, and with ``--overwrite`` move an older run aside.

    Called in every process, before the first barrier of MMEngine's Runner.

    Raises:
        UserError: if another training has taken the folder.
    """
    if is_first_process():
        folder = os.path.realpath(cfg.work_dir)  # a link to a folder on another disk is kept
        _lock(folder)
        check_work_dir(cfg, args)  # again: another training may have begun and ended in between
        if args.overwrite and not was_restarted() and traces_of_training(folder):
            number = 1
            while os.path.exists(f'{folder}.old{number}'):
                number += 1
            os.rename(folder, f'{folder}.old{number}')
            _lock(folder)
            print_log(f'--overwrite: the earlier run in {folder!r} was moved to {f"{folder}.old{number}"!r}.',
                      logger='current', level=30)
    marker = _launch_marker()
    if marker is not None:
        marker.touch()


def _lock(folder: str) -> None:
    """Lock a folder until this process ends, however it ends; processes that it forks do not hold the lock."""
    os.makedirs(folder, exist_ok=True)
    file = os.open(os.path.join(folder, LOCK), os.O_RDWR | os.O_CREAT)
    end = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() > end:
                raise UserError(f'another training is running in {folder!r}: choose another --work-dir, or wait until '
                                'it ends.') from None
            time.sleep(0.2)
        except OSError as error:
            print_log(f'{folder!r} cannot be locked ({error.strerror}): do not start a second training there.',
                      logger='current', level=30)
            return


def was_restarted() -> bool:
    """Return whether torchrun has started this process again, after a crash of a run that had begun.

    A start that was refused is repeated by ``--max-restarts`` too; it must not continue the run for which it was
    refused.
    """
    marker = _launch_marker()
    return int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)) > 0 and (marker is None or marker.exists())


def _launch_marker() -> Path | None:
    """Return a file that is the same for all starts of a torchrun call on a host; None without torchrun."""
    error_file = os.environ.get('TORCHELASTIC_ERROR_FILE')  # LOGS/attempt_0/LOCAL_RANK/error.json
    return Path(error_file).parents[2] / 'cvt_dense_begun' if error_file else None
