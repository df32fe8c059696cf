"""The launchers, and that a result does not depend on how many processes, hosts or schedulers computed it."""
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import torch
from load_tool import ROOT, run_tool
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from tiny_training import EPOCHS, ITERATIONS, call, differences, free_port, load, start, start_two, write_config

TWO = ('--cfg-options', 'train_dataloader.batch_size=6')

# All that srun does here: start the tasks with its variables, pass on a signal, report a failure.
SRUN = """#!/usr/bin/env bash
echo "srun $*"
for option; do
    case $option in --ntasks=*) tasks=${option#*=};; -*) ;; *) break;; esac
    shift
done
export SLURM_JOB_ID=$$ SLURM_NTASKS=$tasks SLURM_NODELIST=localhost
for ((task = 0; task < tasks; task++)); do SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & done
pids=$(jobs -p)
trap 'kill -USR1 $pids' USR1
rc=0
for pid in $pids; do
    while kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
    ((code)) && rc=$code
done
exit $rc
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('distributed')
    write_config(folder)
    (folder / 'bin').mkdir()
    (folder / 'bin' / 'srun').write_text(SRUN)
    (folder / 'bin' / 'srun').chmod(0o755)
    return folder


@pytest.fixture(scope='module')
def slurm(folder):
    return dict(PATH=f'{folder / "bin"}:{os.environ["PATH"]}', GPUS='2', MASTER_ADDR='127.0.0.1')


@pytest.fixture(scope='module')
def one(folder):
    """Work dir of an undisturbed run of one process."""
    run_tool('train', folder / 'tiny.py', '--work-dir', folder / 'one')
    return folder / 'one'


@pytest.fixture(scope='module')
def two(folder):
    """Work dir of the same run with two processes and half the batch each."""
    output = call('tools/dist_train.sh', folder / 'tiny.py', 2, '--work-dir', folder / 'two', *TWO,
                  output=folder / 'two.txt')
    assert '2 x CPU' in output and 'The run in' in output
    return folder / 'two'


def port_is_used(address: str) -> bool:
    with socket.socket() as connection:
        return not connection.connect_ex((address.split(':')[0], int(address.split(':')[1])))


def assert_close(first: Path, second: Path) -> None:
    """Weights and averaged gradients agree to float32's precision: sums were taken in another order."""
    a, b = (load(path / f'epoch_{EPOCHS}.pth') for path in (first, second))
    assert a['meta']['iter'] == b['meta']['iter'] == ITERATIONS
    names = [name for name in a['state_dict'] if name.startswith('backbone') or name.startswith('head')]
    assert len(names) > 100
    for name in names:
        # The softmax does not depend on a bias of the keys. Its gradient is rounding error only, from which
        # AdamW, dividing by its size, makes steps.
        atol = 1e-3 if name.endswith('proj_k.bias') else 5e-6
        torch.testing.assert_close(a['state_dict'][name], b['state_dict'][name], rtol=0, atol=atol, msg=name)
    compared = 0
    for key, state in a['optimizer']['state'].items():
        mean, other = state['exp_avg'], b['optimizer']['state'][key]['exp_avg']
        if mean.abs().max() > 1e-6:
            compared += 1
            assert (mean - other).abs().max() <= 2e-3 * mean.abs().max(), key
    assert compared > 50


def test_two_processes_train_as_one(one, two):
    assert load(two / f'epoch_{EPOCHS}.pth')['meta']['world_size'] == 2
    assert_close(one, two)


def test_two_hosts_train_as_one_host(folder, two):
    work_dir = folder / 'hosts'
    env = dict(NNODES='2', MASTER_ADDR='127.0.0.1', PORT=free_port())
    command = ('tools/dist_train.sh', folder / 'tiny.py', 1, '--work-dir', work_dir, *TWO)
    with start(*command, output=folder / 'host0.txt', NODE_RANK='0', **env) as host0, \
            start(*command, output=folder / 'host1.txt', NODE_RANK='1', **env) as host1:
        assert 'is complete' in host0.finish()
        assert 'Epoch(train)' not in host1.finish()
    assert differences(two / f'epoch_{EPOCHS}.pth', work_dir / f'epoch_{EPOCHS}.pth') == []


def elastic(conf: str, **env: str) -> dict[str, str]:
    """Variables of a host in an elastic run; ``conf``: what torchrun waits for, in seconds instead of minutes."""
    return dict(RDZV=f'127.0.0.1:{free_port()}', PET_LOCAL_ADDR='127.0.0.1',
                PET_RDZV_CONF=f'keep_alive_interval=2,keep_alive_max_attempt=3,{conf}', **env)


def test_a_host_that_died_comes_back_to_an_elastic_run(folder, two):
    work_dir, env = folder / 'elastic', elastic('join_timeout=120', NNODES='2')
    command = ('tools/dist_train.sh', folder / 'tiny.py', 1, '--work-dir', work_dir, '--resume', *TWO)
    with start(*command, output=folder / 'elastic0.txt', **env) as host0:
        host0.wait_for(lambda: port_is_used(env['RDZV']))
        with start(*command, output=folder / 'elastic1.txt', **env) as host1:
            host0.wait_for(lambda: 'Epoch(train) [3]' in host0.text() + host1.text())
            host1.kill()
        with start(*command, output=folder / 'elastic2.txt', **env) as host2:
            host0.finish()
            host2.finish()
        output = host0.text() + host2.text()
    assert len(re.findall('resumed epoch: ', output)) == 1 and 'The run in' in output
    assert differences(two / f'epoch_{EPOCHS}.pth', work_dir / f'epoch_{EPOCHS}.pth') == []


def test_hosts_join_and_leave_an_elastic_run(folder):
    work_dir, env = folder / 'joined', elastic('last_call_timeout=1', NNODES='1:2')
    command = ('tools/dist_train.sh', folder / 'tiny.py', 1, '--work-dir', work_dir, '--resume', '--auto-scale-lr',
               *TWO, 'train_cfg.max_epochs=1000')
    with start(*command, output=folder / 'joined0.txt', **env) as host0:
        host0.wait_for_text('[2][1/6]')
        with start(*command, output=folder / 'joined1.txt', **env) as host1:
            both = lambda: host0.text() + host1.text()  # noqa: E731
            host0.wait_for(lambda: 'Epoch(train)' in both().partition('Continued with 2 x 6')[2])
            os.kill(host1.popen.pid, signal.SIGTERM)
            host0.wait_for_text('Continued with 1 x 6')
    saved, continued = re.findall(r'run was saved after iteration (\d+)', both()), re.findall(
        r'Iteration (\d+) became (\d+) of \d+; learning rates were multiplied by ([\d.]*\d)', both())
    # Each time the run goes on from where it stopped; two processes need half the iterations.
    assert [iteration for iteration, _, _ in continued] == saved[:2]
    assert [factor for _, _, factor in continued] == ['2', '0.5']
    assert 'Another host was told to stop' in host0.text()


def test_slurm_trains_stops_and_continues_with_another_number_of_processes(folder, slurm, one):
    work_dir = folder / 'slurm'
    with start('tools/slurm_train.sh', 'gpus', 'cvt', folder / 'tiny.py', work_dir, *TWO,
               output=folder / 'slurm.txt', SRUN_ARGS='--signal=USR1@60 --exclusive', **slurm) as process:
        process.wait_for_text('Epoch(train) [1][1/3]')
        process.popen.send_signal(signal.SIGUSR1)
        output = process.finish()
    assert output.startswith(
        'srun --partition=gpus --job-name=cvt --gres=gpu:2 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=5 '
        '--kill-on-bad-exit=1 --signal=USR1@60 --exclusive ')
    saved = load(work_dir / 'preempted.pth')['meta']
    assert f'SIGUSR1: the run was saved after iteration {saved["iter"]} and ends' in output
    assert saved['world_size'] == 2

    # The same total batch: the rest of the run is as if nothing had happened.
    output = run_tool('train', folder / 'tiny.py', '--work-dir', work_dir, '--resume')
    assert 'Continued with 1 x 12 images' in output and 'was saved with 2 x 6 x 1' in output
    assert not (work_dir / 'preempted.pth').exists()
    assert_close(one, work_dir)


@pytest.mark.parametrize('env, last, code, calls', [
    ({}, 'preempted.pth', 2, []),  # not in an sbatch script
    (dict(SLURM_JOB_ID='7'), 'preempted.pth', 0, ['srun', 'scontrol requeue 7']),
    (dict(SLURM_JOB_ID='7', SLURM_RESTART_COUNT='1'), 'preempted.pth', 0, ['srun --resume']),
    (dict(SLURM_JOB_ID='7'), 'preempted.pth', 3, ['srun'])])
def test_slurm_queues_again_what_a_signal_has_stopped_and_nothing_else(tmp_path, env, last, code, calls):
    """In place of the tasks, srun names the last checkpoint as SafeCheckpointHook does; --resume completes the run."""
    srun = (f'cd {tmp_path}\n'
            '[[ $* != *--resume ]] || { echo srun --resume; echo epoch_8.pth > last_checkpoint; exit; }\n'
            f'echo srun; echo {last} > last_checkpoint; exit {code}\n')
    for name, lines in dict(srun=srun, scontrol='echo scontrol "$@"\n').items():
        (tmp_path / name).write_text('#!/usr/bin/env bash\n' + lines)
        (tmp_path / name).chmod(0o755)
    result = subprocess.run(
        ['tools/slurm_train.sh', 'gpus', 'cvt', 'tiny.py', tmp_path], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        env={**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'REQUEUE': '1', **env})
    assert result.stdout.splitlines() == calls and result.returncode == code


@HOOKS.register_module()
class Counting(Hook):
    """Write how many of the optimizer's averages each process has."""

    def after_train(self, runner):
        optimizer = runner.optim_wrapper.optimizer
        state = getattr(optimizer, 'optim', optimizer).state
        count = sum(average['exp_avg'].numel() for average in state.values())
        Path(runner.work_dir, f'count{runner.rank}').write_text(str(count))


def test_zero_trains_as_adamw_and_may_go_on_with_one_process(folder, one, two, tmp_path):
    """The optimizer's state is spread over two processes; one process continues from a checkpoint of them."""
    config = tmp_path / 'zero.py'
    config.write_text(f'_base_ = {str(folder / "tiny.py")!r}\n'
                      "default_hooks = dict(counting=dict(type='Counting'), checkpoint=dict(max_keep_ckpts=2))\n"
                      "optim_wrapper = dict(optimizer=dict(type='ZeroRedundancyOptimizer', optimizer_type='AdamW'))\n")
    work_dir, alone = tmp_path / 'work', tmp_path / 'alone'
    with start_two('tools/train.py', config, '--work-dir', work_dir, *TWO, output=tmp_path / 'two') as ranks:
        assert 'is complete' in [rank.finish() for rank in ranks][0]
    different = differences(two / f'epoch_{EPOCHS}.pth', work_dir / f'epoch_{EPOCHS}.pth')
    assert [name for name in different if not name.startswith('optimizer.base_param_settings.')] == []
    run_tool('train', config, '--work-dir', alone, '--resume', work_dir / f'epoch_{EPOCHS - 1}.pth')
    assert_close(one, alone)
    counts = [int((work_dir / f'count{rank}').read_text()) for rank in range(2)]
    assert sum(counts) == int((alone / 'count0').read_text()) and max(counts) < 0.6 * sum(counts)


def test_ctrl_c_ends_all_processes(folder, tmp_path):
    with start('tools/dist_train.sh', folder / 'tiny.py', 2, '--work-dir', tmp_path / 'work', *TWO,
               'train_cfg.max_epochs=1000', output=tmp_path / 'output.txt') as process:
        process.wait_for_text('Saving checkpoint at 1 epochs')
        os.killpg(process.popen.pid, signal.SIGINT)
        process.popen.wait(120)
        end = time.monotonic() + 120
        while process.group_is_alive() and time.monotonic() < end:
            time.sleep(0.05)
        assert not process.group_is_alive()


@pytest.mark.parametrize('args, env, message', [
    (('tools/dist_train.sh', 'tiny.py', 'two'), {}, "GPUS is 'two', but must be a number of processes"),
    (('tools/dist_train.sh', 'tiny.py', '1'), dict(NNODES='2'), 'NNODES=2 needs RDZV=ADDRESS:PORT'),
    (('tools/dist_train.sh', 'tiny.py', '1', '--resume'), dict(RDZV='a:1', NNODES='1-2'), "NNODES is '1-2', but"),
    (('tools/dist_train.sh', 'tiny.py', '1', '--resume', 'a.pth'), dict(RDZV='a:1'), 'needs --resume without a file'),
    (('tools/slurm_test.sh', 'gpus', 'cvt', 'tiny.py'), {}, 'PARTITION JOB_NAME CONFIG CHECKPOINT'),
])
def test_mistakes_in_a_launcher_call(args, env, message):
    result = subprocess.run(args, cwd=ROOT, text=True, capture_output=True, env={**os.environ, **env})
    assert result.returncode == 2 and message in result.stderr and not result.stdout
