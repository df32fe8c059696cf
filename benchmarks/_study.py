"""Run trainings side by side, each resumable, and read their results, for study.py and tools/demo.py."""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cvt_dense.atomic import write_atomically
from cvt_dense.config.options import format_option
from cvt_dense.engine.curves import Curves
from cvt_dense.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
PROGRESS = re.compile(r'(Epoch|Iter)\(train\) +(\[[^]]*\](?:\[[^]]*\])?).*? loss: ([\d.]+)')


@dataclass
class Run:
    """A run of tools/train.py.

    Attributes:
        name: name of the run's folder in the work dir.
        config: file, relative to the project's root.
        options: values of --cfg-options.
        data_root: value of --data-root; None: the config's.
        weights: by setting, the name of the run whose last checkpoint it takes.
        evaluated: whether its last checkpoint is evaluated; pretraining without labels is not.
    """
    name: str
    config: str
    options: Sequence[str] = ()
    data_root: str | None = None
    weights: dict[str, str] = field(default_factory=dict)
    evaluated: bool = True


def record_settings(work_dir: Path, file: str, settings: dict, what: str) -> None:
    """Write the settings of a study or demo into its work dir, which may get further ones later.

    Args:
        work_dir: is made if it does not exist.
        file: name of the file in ``work_dir``.
        settings: JSON values by name.
        what: 'study' or the like, for the error.

    Raises:
        UserError: the folder holds something else, or the same with another value of a setting.
    """
    path, settings = work_dir / file, json.loads(json.dumps(settings))
    before = json.loads(path.read_text()) if path.exists() else {}
    if not before and work_dir.exists() and any(work_dir.iterdir()):
        raise UserError(f'{work_dir} is not empty and holds no {what}: give another --work-dir.')
    changed = sorted(key for key in before.keys() & settings.keys() if before[key] != settings[key])
    if changed:
        raise UserError(f'{work_dir} holds a {what} with other settings ({", ".join(changed)}; see {path}): give '
                        'another --work-dir, or delete this one.')
    write_atomically(path, json.dumps({**before, **settings}, indent=1))


# -- commands --------------------------------------------------------------------------------------


def run_together(commands: dict[str, list[str]], logs: dict[str, Path]) -> dict[str, str]:
    """Run commands at the same time, with an equal part of the CPU's cores each, and show their progress.

    Args:
        commands: by name, what follows ``python``.
        logs: by name, the file that takes a command's output.

    Returns:
        By name of each command that failed: its exit code and the end of its log. The others ran to their end.
    """
    cores = int(os.environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0)))
    threads = str(max(1, cores // len(commands)))
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, PYTHONWARNINGS='ignore')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the commands end too
    start = shown = time.time()
    processes: dict[str, subprocess.Popen] = {}
    try:
        for name, command in commands.items():
            print('  $ python ' + shlex.join(command), flush=True)
            with logs[name].open('w') as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.2)
            if time.time() - shown > 10:
                shown = time.time()
                print('  |  '.join([f'    {shown - start:.0f} s', *filter(None, map(_progress, logs.values()))]),
                      flush=True)
    except KeyboardInterrupt:
        sys.exit('\ninterrupted: run the same command again to continue')
    finally:
        for process in processes.values():
            process.terminate()
            process.wait()
    failed = {name: f'{name} failed with exit code {process.returncode}; {_end_of(logs[name])}'
              for name, process in processes.items() if process.returncode}
    print(f'    {"failed" if failed else "done"} in {time.time() - start:.0f} s', flush=True)
    return failed


def _end_of(log: Path) -> str:
    tail = '\n'.join('    ' + line for line in log.read_text(errors='replace').splitlines()[-15:])
    return f'the end of its log {log}:\n{tail}'


def _progress(log: Path) -> str:
    """Return the last training line of a log in short, or '' where there is none."""
    found = PROGRESS.findall(log.read_text(errors='replace'))
    return f'{log.stem}: {found[-1][0].lower()} {found[-1][1]}, loss {found[-1][2]}' if found else ''


# -- trainings -------------------------------------------------------------------------------------


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint of an epoch or iteration in a run's folder."""
    found = sorted((*folder.glob('epoch_*.pth'), *folder.glob('iter_*.pth')), key=lambda path: path.stat().st_mtime)
    return found[-1] if found else None


def read_result(folder: Path) -> dict[str, float] | None:
    """Return the metrics of the last checkpoint; None if there is none, or it has not been evaluated."""
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        return None
    step = int(checkpoint.stem.rsplit('_', 1)[1])
    results = [point.values for point in Curves(folder).points if point.evaluation and point.values['step'] == step]
    return results[-1] if results else None


def train(runs: Sequence[Run], work_dir: Path, jobs: int = 2) -> dict[str, str]:
    """Train the runs that are not finished, each from its last checkpoint.

    Args:
        runs: the trainings.
        work_dir: folder of all runs.
        jobs: number of trainings at a time.

    Returns:
        By name of each run that failed, or that needs the weights of one that failed: the reason.
    """
    failed: dict[str, str] = {}
    for wave in _waves(runs, jobs):
        started = []
        for run in wave:
            missing = [name for name in run.weights.values() if not (work_dir / name / 'finished').exists()]
            if (work_dir / run.name / 'finished').exists():
                print(f'  {run.name}: finished before')
            elif missing:
                why = 'failed' if missing[0] in failed else 'is not finished: train it first'
                failed[run.name] = f'{run.name} takes the weights of {missing[0]}, which {why}'
            else:
                started.append(run)
        if not started:
            continue
        logs = {run.name: work_dir / f'{run.name}.log' for run in started}
        failed |= run_together({run.name: _command(run, work_dir) for run in started}, logs)
        for run in started:
            if run.name not in failed:
                why = _finish(run, work_dir / run.name, logs[run.name])
                failed |= {run.name: why} if why else {}
    return failed


def _finish(run: Run, folder: Path, log: Path) -> str | None:
    """Write the result of a run that ended with exit code 0, so that it outlives the checkpoints, or return why not."""
    last = folder / 'last_checkpoint'
    if last.exists() and Path(last.read_text().strip()).name == 'preempted.pth':
        return f'{run.name} was stopped by a signal; the same command continues it'
    result = read_result(folder) if run.evaluated else {}
    if result is None:
        return f'{run.name} logged no evaluation of its last checkpoint; {_end_of(log)}'
    write_atomically(folder / 'finished', json.dumps(result, indent=1) + '\n')
    return None


def _waves(runs: Sequence[Run], jobs: int) -> Iterator[list[Run]]:
    """Yield runs that can be trained together: at most ``jobs``, and none that takes another's weights."""
    wave: list[Run] = []
    for run in runs:
        if len(wave) == jobs or set(run.weights.values()) & {other.name for other in wave}:
            yield wave
            wave = []
        wave.append(run)
    yield wave


def _command(run: Run, work_dir: Path) -> list[str]:
    folder = work_dir / run.name
    command = ['tools/train.py', run.config, '--work-dir', str(folder)]
    if run.data_root is not None:
        command += ['--data-root', run.data_root]
    if folder.exists():
        command.append('--resume')
    weights = [format_option(setting, str(last_checkpoint(work_dir / name))) for setting, name in run.weights.items()]
    return command + (['--cfg-options', *run.options, *weights] if [*run.options, *weights] else [])
