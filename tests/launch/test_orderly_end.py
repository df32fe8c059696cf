"""Two processes end with the right exit codes, and without threads of the process group when Python shuts down.

``PYTHONPATH=.:tests python tests/launch/test_orderly_end.py 100 [success|stop|error]`` starts a run of two processes
again and again, with one busy process per core beside it, and counts how its processes end: with 0 in a run that ends
or is stopped by a signal to one process, with 1 where one process raises.
"""
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from forked import free_port
from tiny_training import start, write_config

PATIENCE = 300.  # seconds for a start on a busy machine; what takes longer hangs
EXIT_CODES = dict(success=(0, 0), stop=(0, 0), error=(1, 1))
MODULE = """
import atexit
import os
from pathlib import Path
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

@atexit.register
def write_threads():
    names = [Path(f'/proc/self/task/{number}/comm') for number in os.listdir('/proc/self/task')]
    Path(__file__).with_name('threads_' + os.environ['RANK'] + '.txt').write_text(
        ''.join(name.read_text() for name in names))

@HOOKS.register_module()
class FailingHook(Hook):
    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.rank == 1 and runner.iter == 2:
            raise RuntimeError('the second process fails')
"""


def write_run(folder: Path) -> None:
    """Write data, a config and a module of the run: a hook that fails, and a note of the threads at shutdown."""
    config = write_config(folder)
    (folder / 'run.py').write_text(f"_base_ = {str(config)!r}\ncustom_imports = dict(imports=['hooks_of_the_run'])\n")
    (folder / 'hooks_of_the_run.py').write_text(MODULE)


def run_once(folder: Path, ending: str, name: str) -> tuple[int | str, ...]:
    """Return the exit codes of the processes of one run; 'hangs' for one that had to be killed.

    Args:
        folder: see :func:`write_run`; work dir and outputs (``{name}_0.txt``, ``{name}_1.txt``) go there too.
        ending: a key of ``EXIT_CODES``.
        name: of this start.
    """
    options = ['train_dataloader.batch_size=6', f'train_cfg.max_epochs={1 if ending == "success" else 1000}']
    if ending == 'error':
        options.append('default_hooks.failing.type=FailingHook')
    command = (sys.executable, 'tools/train.py', folder / 'run.py', '--work-dir', folder / name,
               '--launcher', 'pytorch', '--cfg-options', *options)
    env = dict(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=free_port(), PYTHONPATH=str(folder))
    with ExitStack() as stack:
        processes = [stack.enter_context(start(*command, output=folder / f'{name}_{rank}.txt', RANK=str(rank),
                                               LOCAL_RANK=str(rank), **env)) for rank in range(2)]
        end = time.monotonic() + PATIENCE
        if ending == 'stop':
            processes[0].wait_for_text('Saving checkpoint at 1 epochs')
            processes[1].popen.send_signal(signal.SIGUSR1)
        while any(process.popen.poll() is None for process in processes) and time.monotonic() < end:
            time.sleep(0.05)
        codes = tuple('hangs' if process.popen.poll() is None else process.popen.returncode
                      for process in processes)
    shutil.rmtree(folder / name, ignore_errors=True)
    return codes


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('orderly')
    write_run(folder)
    return folder


@pytest.mark.parametrize('ending', EXIT_CODES)
def test_processes_leave_the_group_before_python_ends(folder, ending):
    """Whether the threads that are left at shutdown kill a process is a matter of luck; that some are left is not."""
    assert run_once(folder, ending, ending) == EXIT_CODES[ending]
    for rank in range(2):
        threads = (folder / f'threads_{rank}.txt').read_text().split()
        assert 'python' in threads and not [name for name in threads if 'gloo' in name], threads
    first, second = (folder / f'{ending}_{rank}.txt' for rank in range(2))
    if ending == 'error':
        assert second.read_text().rstrip().endswith('RuntimeError: the second process fails')
    elif ending == 'stop':
        assert 'SIGUSR1: the run was saved' in first.read_text()


def _burn() -> None:
    while True:
        pass


@contextmanager
def load_on_the_machine():
    """One busy process per core."""
    burners = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(os.cpu_count() or 1)]
    for burner in burners:
        burner.start()
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()


def main(starts: int, ending: str = 'success') -> None:
    folder = Path(tempfile.mkdtemp(prefix='two_processes_'))
    write_run(folder)
    counts: Counter = Counter()
    with load_on_the_machine():
        for number in range(1, starts + 1):
            begin = time.monotonic()
            codes = run_once(folder, ending, f'start{number}')
            counts[codes] += 1
            print(f'start {number}: exit codes {codes}, {time.monotonic() - begin:.0f} s', flush=True)
    good = counts[EXIT_CODES[ending]]
    print(f'{ending}: {good} of {starts} starts ended with {EXIT_CODES[ending]}; all: {dict(counts)}')
    if good < starts:
        sys.exit(f'The outputs are in {folder}.')
    shutil.rmtree(folder)


if __name__ == '__main__':
    os.environ['CUDA_VISIBLE_DEVICES'] = ''
    main(int(sys.argv[1]), *sys.argv[2:3])
