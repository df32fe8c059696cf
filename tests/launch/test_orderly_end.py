"""Two processes end with the right exit codes, and without threads of the process group when Python shuts down."""
import signal
import sys
from pathlib import Path

import pytest
from tiny_training import start, start_two, write_config

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


@pytest.fixture
def command(tmp_path) -> tuple:
    (tmp_path / 'run.py').write_text(
        f"_base_ = {str(write_config(tmp_path))!r}\ncustom_imports = dict(imports=['hooks_of_the_run'])\n")
    (tmp_path / 'hooks_of_the_run.py').write_text(MODULE)
    return (tmp_path / 'run.py', '--work-dir', tmp_path / 'work', '--cfg-options', 'train_dataloader.batch_size=6',
            'train_cfg.max_epochs=1000')


def assert_no_threads(folder: Path) -> None:
    """Whether the threads that are left at shutdown kill a process is a matter of luck; that some are left is not."""
    for rank in range(2):
        threads = (folder / f'threads_{rank}.txt').read_text().split()
        assert 'python' in threads and not [name for name in threads if 'gloo' in name], threads


def test_a_stopped_run_ends_all_processes_in_order(command, tmp_path):
    with start_two(sys.executable, 'tools/train.py', *command, output=tmp_path / 'output',
                   PYTHONPATH=str(tmp_path)) as processes:
        processes[0].wait_for_text('Saving checkpoint at 1 epochs')
        processes[1].popen.send_signal(signal.SIGUSR1)
        outputs = [process.finish() for process in processes]
    assert_no_threads(tmp_path)
    assert 'SIGUSR1: the run was saved' in outputs[0]


def test_a_failing_process_ends_all_and_has_the_last_word(command, tmp_path):
    config, *flags = command
    with start('tools/dist_train.sh', config, 2, *flags, 'default_hooks.failing.type=FailingHook',
               output=tmp_path / 'output.txt', PYTHONPATH=str(tmp_path)) as process:
        output = process.finish(rc=1)
        assert not process.group_is_alive()
    assert_no_threads(tmp_path)
    root_cause = output[output.rindex('Root Cause'):]
    assert 'rank      : 1' in root_cause and 'exitcode  : 1 ' in root_cause
    assert root_cause.rstrip(' \n=').endswith('RuntimeError: the second process fails')
