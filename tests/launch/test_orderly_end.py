"""Two processes end with the right exit codes, and without threads of the process group when Python shuts down.

The exit code is 0 in a run that is stopped by a signal to one process, and 1 where one process raises.
"""
import signal
import sys

import pytest
from tiny_training import start_two, write_config

EXIT_CODES = dict(stop=0, error=1)
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


@pytest.mark.parametrize('ending', EXIT_CODES)
def test_processes_leave_the_group_before_python_ends(tmp_path, ending):
    """Whether the threads that are left at shutdown kill a process is a matter of luck; that some are left is not."""
    config = write_config(tmp_path)
    (tmp_path / 'run.py').write_text(
        f"_base_ = {str(config)!r}\ncustom_imports = dict(imports=['hooks_of_the_run'])\n")
    (tmp_path / 'hooks_of_the_run.py').write_text(MODULE)
    options = ['train_dataloader.batch_size=6', 'train_cfg.max_epochs=1000']
    if ending == 'error':
        options.append('default_hooks.failing.type=FailingHook')
    with start_two(sys.executable, 'tools/train.py', tmp_path / 'run.py', '--work-dir', tmp_path / 'work',
                   '--cfg-options', *options, output=tmp_path / 'output', PYTHONPATH=str(tmp_path)) as processes:
        if ending == 'stop':
            processes[0].wait_for_text('Saving checkpoint at 1 epochs')
            processes[1].popen.send_signal(signal.SIGUSR1)
        outputs = [process.finish(rc=EXIT_CODES[ending]) for process in processes]
    for rank in range(2):
        threads = (tmp_path / f'threads_{rank}.txt').read_text().split()
        assert 'python' in threads and not [name for name in threads if 'gloo' in name], threads
    if ending == 'error':
        assert outputs[1].rstrip().endswith('RuntimeError: the second process fails')
    else:
        assert 'SIGUSR1: the run was saved' in outputs[0]
