"""Manage work directories: one training in each, and its tests in ``test/`` inside."""
import os
from pathlib import Path

from filelock import FileLock, Timeout
from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from .distributed import is_first_process
from .flags import TestFlags, TrainFlags

TEST = 'test'
CHECKPOINTS = ('last_checkpoint', 'epoch_*.pth', 'iter_*.pth', 'best_*.pth', 'preempted.pth')
LOCK = 'training.lock'
PATIENCE = 20.  # seconds that a start waits for the processes of a training that is just ending
_LOCKS: dict[str, FileLock] = {}  # by folder; held until this process ends


def traces_of_training(folder: str | Path) -> list[str]:
    """Return the names of checkpoints and curves in ``folder``; a run that ended before its first log line has none."""
    found = [path for pattern in CHECKPOINTS for path in sorted(Path(folder).glob(pattern))]
    found += [path for path in sorted(Path(folder).glob('*/vis_data/scalars.json')) if path.stat().st_size]
    return [str(path.relative_to(folder)) for path in found]


def test_folder(cfg: Config, flags: TestFlags) -> str:
    """Return where a test of ``flags.checkpoint`` writes: ``test/`` in --work-dir, or else in the checkpoint's run.

    A checkpoint that lies in no run, such as a downloaded one, is tested in the config's ``work_dir``.
    """
    run = os.path.dirname(flags.checkpoint)
    if flags.work_dir is not None or '://' in flags.checkpoint or not traces_of_training(run or '.'):
        run = cfg.work_dir
    return run if os.path.basename(os.path.normpath(run)) == TEST else os.path.join(run, TEST)


def check_work_dir(cfg: Config, flags: TrainFlags) -> None:
    """Refuse to train in a folder that holds another run, which is neither continued nor moved aside.

    Raises:
        UserError: if the folder holds another run.
    """
    found = traces_of_training(cfg.work_dir)
    if not found or flags.overwrite or flags.resume is not None or cfg.get('resume') or was_restarted():
        return
    more = f' and {len(found) - 3} more' if len(found) > 3 else ''
    raise UserError(f'{cfg.work_dir!r} holds another run ({", ".join(found[:3])}{more}), with which this one would be '
                    'mixed. Continue that run with --resume, choose another folder with --work-dir, or move that run '
                    'aside with --overwrite.')


def lock_work_dir(cfg: Config, flags: TrainFlags) -> None:
    """Lock the folder of a training until this process ends, and with ``--overwrite`` move an older run aside.

    Called in every process, before the first barrier of MMEngine's Runner.

    Raises:
        UserError: if another training has locked the folder.
    """
    if is_first_process():
        folder = os.path.realpath(cfg.work_dir)  # a link to a folder on another disk is kept
        _lock(folder)
        if flags.overwrite and not was_restarted() and traces_of_training(folder):
            number = 1
            while os.path.exists(f'{folder}.old{number}'):
                number += 1
            os.rename(folder, f'{folder}.old{number}')
            _LOCKS.pop(folder).release()
            _lock(folder)
            print_log(f'--overwrite: the earlier run in {folder!r} was moved to {f"{folder}.old{number}"!r}.',
                      logger='current', level=30)
    marker = _launch_marker()
    if marker is not None:
        marker.touch()


def _lock(folder: str) -> None:
    os.makedirs(folder, exist_ok=True)
    lock = _LOCKS.setdefault(folder, FileLock(os.path.join(folder, LOCK)))
    try:
        lock.acquire(timeout=PATIENCE)
    except Timeout:
        raise UserError(f'another training is running in {folder!r}: choose another --work-dir, or wait until it '
                        'ends.') from None


def resume_from(cfg: Config, checkpoint: str | None) -> None:
    """Let the run continue from ``checkpoint``, or with 'auto' from the last complete one in the work dir.

    A process that torchrun has started again after a crash (``--max-restarts``) always continues from the work dir.
    Where that holds no checkpoint yet, the run starts from its beginning, and the log reports it.
    """
    restarted = was_restarted()
    if checkpoint is None and not restarted:
        return
    from ..engine.checkpoint import find_checkpoint  # imports PyTorch
    found = find_checkpoint(cfg.work_dir) if restarted or checkpoint == 'auto' else None
    if found is None and checkpoint != 'auto':
        found = checkpoint
    if found is None:
        print_log(f'{cfg.work_dir!r} holds no complete checkpoint: training from the beginning.', logger='current')
        return
    cfg.resume, cfg.load_from = True, found


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
