"""Run trainings side by side, each of which can be continued, and read their results: of demo.py and benchmarks/."""
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..atomic import write_atomically
from ..engine.checkpoint import PREEMPTED
from ..engine.curves import Curves
from ..errors import UserError
from ..recipes import folder

ROOT = folder()  # of configs/ and tools/


@dataclass
class Run:
    """A run of tools/train.py.

    Attributes:
        name: name of the run's folder in the work dir.
        config: file, relative to the project's root.
        data_root: value of --data-root.
        options: values of --cfg-options.
    """
    name: str
    config: str
    data_root: str
    options: Sequence[str] = ()


def edit_head(template: str, **lines: Any) -> str:
    """Return the text of ``configs/<template>.py`` with other values in its head.

    Args:
        template: a template's name.
        lines: value of each variable; 'train_ann, train_images' is written train_ann__train_images.

    Raises:
        ValueError: the head has no such line, or has it twice.
    """
    head, rest = (ROOT / f'configs/{template}.py').read_text().split('# -----', 1)
    for name, value in lines.items():
        names = name.replace('__', ', ')
        head, number = re.subn(rf'^{names} = .*$', lambda _: f'{names} = {value!r}', head, flags=re.M)
        if number != 1:
            raise ValueError(f'{template}: {number} lines begin with {names!r}')
    return head + '# -----' + rest


def record_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write settings into a work dir, unless they are there already.

    Args:
        path: file in the work dir, which is made if it does not exist.
        settings: JSON values by name.

    Raises:
        UserError: the folder holds something else, or other settings.
    """
    text = json.dumps(settings, indent=1)
    if path.exists() and path.read_text() != text:
        raise UserError(f'{path} has other settings: give another --work-dir, or delete this one.')
    if not path.exists() and path.parent.exists() and any(path.parent.iterdir()):
        raise UserError(f'{path.parent} is not empty and has no {path.name}: give another --work-dir.')
    write_atomically(path, text)


# -- commands --------------------------------------------------------------------------------------


def run_together(commands: dict[str, list[str]], logs: dict[str, Path]) -> dict[str, str]:
    """Run commands at the same time, with an equal part of the CPU's cores each, and name their logs.

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
    start = time.time()
    processes: dict[str, subprocess.Popen] = {}
    try:
        for name, command in commands.items():
            print(f'  $ python {shlex.join(command)}\n    (log: {logs[name]})', flush=True)
            with logs[name].open('w') as log:
                processes[name] = subprocess.Popen(
                    [sys.executable, *command], cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        for process in processes.values():
            process.wait()
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


# -- trainings -------------------------------------------------------------------------------------


def last_checkpoint(folder: Path) -> Path:
    """Return the newest checkpoint of an epoch or iteration in a run's folder."""
    return max((*folder.glob('epoch_*.pth'), *folder.glob('iter_*.pth')), key=lambda path: path.stat().st_mtime)


def read_result(folder: Path) -> dict[str, float] | None:
    """Return the metrics of a run that is finished; None for another one."""
    file = folder / 'finished'
    return json.loads(file.read_text()) if file.exists() else None


def train(runs: Sequence[Run], work_dir: Path, jobs: int = 2) -> dict[str, str]:
    """Train the runs that are not finished, each from its last checkpoint.

    Args:
        runs: the trainings.
        work_dir: folder of all runs.
        jobs: number of trainings at a time.

    Returns:
        By name of each run that failed: the reason.
    """
    failed: dict[str, str] = {}
    waiting = [run for run in runs if read_result(work_dir / run.name) is None]
    for run in runs:
        if run not in waiting:
            print(f'  {run.name}: finished before')
    for start in range(0, len(waiting), jobs):
        group = waiting[start:start + jobs]
        logs = {run.name: work_dir / f'{run.name}.log' for run in group}
        failed |= run_together({run.name: _command(run, work_dir / run.name) for run in group}, logs)
        for run in group:
            if run.name not in failed:
                failed |= _finish(run.name, work_dir / run.name)
    return failed


def _finish(name: str, folder: Path) -> dict[str, str]:
    """Write the result of a run that ended with exit code 0, so that it outlives the checkpoints, or return why not."""
    if Path((folder / 'last_checkpoint').read_text().strip()).name == PREEMPTED:
        return {name: f'{name} was stopped by a signal; the same command continues it'}
    step = int(last_checkpoint(folder).stem.rsplit('_', 1)[1])
    results = [point.values for point in Curves(folder).points if point.evaluation and point.values['step'] == step]
    if not results:
        return {name: f'{name} logged no evaluation of its last checkpoint'}
    write_atomically(folder / 'finished', json.dumps(results[-1], indent=1) + '\n')
    return {}


def _command(run: Run, folder: Path) -> list[str]:
    command = ['tools/train.py', run.config, '--work-dir', str(folder), '--data-root', run.data_root]
    if folder.exists():
        command.append('--resume')
    return command + (['--cfg-options', *run.options] if run.options else [])
