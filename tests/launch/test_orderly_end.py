"""Two processes end with the right exit codes, and without threads of the process group when Python shuts down."""
import pytest
from loop_two_processes import EXIT_CODES, run_once, write_run


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
