"""Run commands side by side, and trainings that can be continued: of demo.py and benchmarks/."""
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..engine.checkpoint import PREEMPTED, find_checkpoint
from ..recipes import folder as project_folder

ROOT = project_folder()  # of configs/ and tools/


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


def run_together(commands: dict[str, list[str]], work_dir: Path) -> None:
    """Run commands at the same time, with an equal part of the CPU's cores each, and end the process if some fail.

    Args:
        commands: by name, what follows ``python``.
        work_dir: folder of the logs ``<name>.log``.
    """
    cores = int(os.environ.get('OMP_NUM_THREADS') or len(os.sched_getaffinity(0)))
    threads = str(max(1, cores // len(commands)))
    env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, PYTHONWARNINGS='ignore')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the commands end too
    start = time.time()
    logs = {name: work_dir / f'{name}.log' for name in commands}
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
    failed = [f'{name} failed; the end of its log {logs[name]}:\n{_end_of(logs[name])}'
              for name, process in processes.items() if process.returncode]
    if failed:
        sys.exit('\n'.join(failed))
    print(f'    done in {time.time() - start:.0f} s', flush=True)


def _end_of(log: Path) -> str:
    return '\n'.join(log.read_text(errors='replace').splitlines()[-15:])


def train(runs: dict[str, list[str]], work_dir: Path) -> None:
    """Train the runs that are not finished, each from its last checkpoint.

    A finished run's folder gets an empty file ``finished``. The process ends if a run fails or is stopped.

    Args:
        runs: by the name of the run's folder in ``work_dir``, arguments of tools/train.py.
        work_dir: folder of all runs.
    """
    commands = {}
    for name, arguments in runs.items():
        folder = work_dir / name
        if (folder / 'finished').exists():
            print(f'  {name}: finished before')
        else:
            resume = ['--resume'] if folder.exists() else []
            commands[name] = ['tools/train.py', *arguments, '--work-dir', str(folder), *resume]
    if commands:
        run_together(commands, work_dir)
    for name in commands:
        if Path(find_checkpoint(work_dir / name)).name == PREEMPTED:
            sys.exit(f'{name} was stopped by a signal; the same command continues it')
        (work_dir / name / 'finished').touch()
