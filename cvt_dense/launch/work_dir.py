"""Folders of runs: one training in each, its tests in ``test/`` inside."""
import argparse
import os
from pathlib import Path

from mmengine.config import Config
from mmengine.logging import print_log

from ..errors import UserError
from ..nodes import walk
from .check_data.data_sets import is_first_process

TEST = 'test'
CHECKPOINTS = ('last_checkpoint', 'epoch_*.pth', 'iter_*.pth', 'best_*.pth', 'preempted.pth')


def traces_of_training(folder: str | Path) -> list[str]:
    """Checkpoints and curves in ``folder``, by their names in it; none where a run ended before its first log line."""
    found = [path for pattern in CHECKPOINTS for path in sorted(Path(folder).glob(pattern))]
    found += [path for path in sorted(Path(folder).glob('*/vis_data/scalars.json')) if path.stat().st_size]
    return [str(path.relative_to(folder)) for path in found]


def test_folder(cfg: Config, args: argparse.Namespace) -> str:
    """Where a test of ``args.checkpoint`` writes: ``test/`` in --work-dir, or else in the checkpoint's run.

    A checkpoint that lies in no run, such as a downloaded one, is tested in the config's ``work_dir``.
    """
    run = os.path.dirname(args.checkpoint)
    if args.work_dir is not None or '://' in args.checkpoint or not traces_of_training(run or '.'):
        run = cfg.work_dir
    return run if os.path.basename(os.path.normpath(run)) == TEST else os.path.join(run, TEST)


# -- one training in a folder ------------------------------------------------------------------------


def check_work_dir(cfg: Config, args: argparse.Namespace) -> None:
    """Refuses to train in a folder that holds another run; called in the first process, for all.

    Not where the run goes on with what is there (``--resume``, a process that torchrun started again), and not with
    ``--overwrite``, if nothing that the run needs would be moved aside.

    Raises:
        UserError: the folder holds another run, or what is to be moved aside is needed.
    """
    if args.resume is None and not cfg.get('resume') and not was_restarted():
        error = _objection(cfg, args.overwrite)
        if error is not None:
            raise UserError(error)


def _objection(cfg: Config, overwrite: bool) -> str | None:
    found = traces_of_training(cfg.work_dir)
    if not found:
        return None
    if not overwrite:
        more = f' and {len(found) - 3} more' if len(found) > 3 else ''
        return (f'{cfg.work_dir!r} holds another run ({", ".join(found[:3])}{more}), with which this one would be '
                'mixed. Go on with that one by --resume, or start this one in another folder by --work-dir; '
                '--overwrite moves that one aside.')
    inside = os.path.join(os.path.abspath(cfg.work_dir), '')
    needed = {f'{path}.{key}': value for path, node in walk(cfg.to_dict()) for key, value in node.items()
              if isinstance(value, str) and value and os.path.abspath(value).startswith(inside)
              and os.path.exists(value)}
    if os.path.join(os.getcwd(), '').startswith(inside):
        needed['the current folder'] = os.getcwd()
    if needed:
        name, value = next(iter(needed.items()))
        return (f'--overwrite would move {cfg.work_dir!r} aside with what this run needs: {name.lstrip(".")} is '
                f'{value!r}. Name another --work-dir.')
    return None


def begin(cfg: Config, args: argparse.Namespace) -> None:
    """What precedes a checked training's first file: with ``--overwrite`` an older run is moved aside.

    Called in every process, before MMEngine's Runner lets them meet.
    """
    if is_first_process() and args.overwrite and not was_restarted() and traces_of_training(cfg.work_dir):
        folder = os.path.normpath(cfg.work_dir)
        number = 1
        while os.path.exists(f'{folder}.old{number}'):
            number += 1
        os.rename(folder, f'{folder}.old{number}')
        print_log(f'--overwrite: the run that was in {folder!r} is in {f"{folder}.old{number}"!r} now.',
                  logger='current', level=30)
    marker = _launch_marker()
    if marker is not None:
        marker.touch()


def was_restarted() -> bool:
    """Whether torchrun has started this process again, after a crash of a run that had begun.

    A start that was refused is repeated by ``--max-restarts`` too; it must not go on with the run that it was
    refused for.
    """
    marker = _launch_marker()
    return int(os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)) > 0 and (marker is None or marker.exists())


def _launch_marker() -> Path | None:
    """A file that all starts of a torchrun call share on a host, in its folder of logs; None without torchrun."""
    error_file = os.environ.get('TORCHELASTIC_ERROR_FILE')  # LOGS/attempt_0/LOCAL_RANK/error.json
    return Path(error_file).parents[2] / 'cvt_dense_begun' if error_file else None
