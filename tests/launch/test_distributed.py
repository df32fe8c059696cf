"""The launchers, and that a result does not depend on how many processes computed it."""
import os
import re
import signal
import subprocess
from pathlib import Path
from unittest import mock

import pytest
import torch
from load_tool import ROOT, run_tool
from mmengine.config import Config
from tiny_training import EPOCHS, ITERATIONS, differences, load, start, start_two, write_config

from cvt_dense.launch.distributed import setup_distributed
from cvt_dense.shapes import generate

pytestmark = pytest.mark.slow

NO_GPU = dict(CUDA_VISIBLE_DEVICES='NoDevFiles')  # as Slurm sets it; an empty value asks for the CPU
TWO = ('--cfg-options', 'train_dataloader.batch_size=6')

MODULE = """
import atexit
import os
import signal
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
        if runner.rank == 1 and (os.environ['TORCHELASTIC_RESTART_COUNT'], runner.iter) == ('0', 11):
            os.kill(os.getpid(), signal.SIGKILL)
        if runner.rank == 1 and runner.iter == 17:
            raise RuntimeError('the second process fails')
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp('distributed')
    write_config(folder)
    (folder / 'data/val/dark/000.png').unlink()  # so that one process evaluates an image less
    return folder


@pytest.fixture(scope='module')
def alone(folder):
    """Work dir of an undisturbed run of one process."""
    run_tool('train', folder / 'tiny.py', '--work-dir', folder / 'alone')
    return folder / 'alone'


@pytest.fixture(scope='module')
def two(folder):
    """Work dir of the same run with two processes and half the batch each."""
    with start_two('tools/train.py', folder / 'tiny.py', '--work-dir', folder / 'two', *TWO, output=folder / 'two',
                   DEVICE='cpu', **NO_GPU) as ranks:
        outputs = [rank.finish() for rank in ranks]
    assert '2 x CPU' in outputs[0]
    return folder / 'two'


@pytest.fixture
def command(folder, tmp_path, monkeypatch) -> tuple:
    """Flags of a run in ``tmp_path / 'work'`` whose processes write their threads at the end."""
    (tmp_path / 'run.py').write_text(
        f"_base_ = {str(folder / 'tiny.py')!r}\ncustom_imports = dict(imports=['hooks_of_the_run'])\n")
    (tmp_path / 'hooks_of_the_run.py').write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)  # of forks
    return (tmp_path / 'run.py', '--work-dir', tmp_path / 'work', *TWO)


def assert_no_threads(folder: Path, ranks: tuple[int, ...] = (0, 1)) -> None:
    """Whether the threads that are left at shutdown kill a process is a matter of luck; that some are left is not."""
    for rank in ranks:
        threads = (folder / f'threads_{rank}.txt').read_text().split()
        assert threads and not [name for name in threads if 'gloo' in name], threads


def assert_close(first: Path, second: Path) -> None:
    """The weights agree to float32's precision: sums were taken in another order."""
    a, b = (load(path / f'epoch_{EPOCHS}.pth') for path in (first, second))
    assert a['meta']['iter'] == b['meta']['iter'] == ITERATIONS
    names = [name for name in a['state_dict'] if name.startswith('backbone') or name.startswith('head')]
    assert len(names) > 100
    for name in names:
        # The softmax does not depend on a bias of the keys. Its gradient is rounding error only, from which
        # AdamW, dividing by its size, makes steps.
        atol = 1e-3 if name.endswith('proj_k.bias') else 5e-6
        torch.testing.assert_close(a['state_dict'][name], b['state_dict'][name], rtol=0, atol=atol, msg=name)


def test_two_processes_train_as_one(alone, two):
    assert load(two / f'epoch_{EPOCHS}.pth')['meta']['world_size'] == 2
    assert_close(alone, two)


def test_two_processes_test_as_one(two, folder, tmp_path):
    run = folder / 'tiny.py', two / f'epoch_{EPOCHS}.pth'
    with start_two('tools/test.py', *run, '--work-dir', tmp_path / 'two', output=tmp_path / 'output', DEVICE='cpu',
                   **NO_GPU) as ranks:
        outputs = *[rank.finish() for rank in ranks][:1], run_tool('test', *run, '--work-dir', tmp_path / 'one')
    metrics = [re.findall(r'accuracy/top1: [\d.]+ .*raw/accuracy/loss: [\d.]+', output) for output in outputs]
    assert len(metrics[0]) == 1 and metrics[0] == metrics[1] and '2 x CPU' in outputs[0]


@pytest.mark.parametrize('launcher', ['pytorch', 'slurm'])
@mock.patch.dict('os.environ', NO_GPU, SLURM_LOCALID='0', SLURM_PROCID='0', SLURM_NTASKS='1', SLURM_JOB_ID='1',
                 MASTER_ADDR='127.0.0.1', RANK='0', WORLD_SIZE='2', TORCHELASTIC_RUN_ID='1')
def test_a_missing_gpu_is_an_error_unless_the_cpu_is_asked_for(folder, tmp_path, launcher):
    command = 'train', folder / 'tiny.py', '--work-dir', tmp_path / 'run'
    assert 'DEVICE=cpu' in run_tool(*command, '--launcher', launcher, rc=2)
    assert '--launcher pytorch' in run_tool(*command, rc=2) and not (tmp_path / 'run').exists()


def test_torchrun_resumes_after_the_loss_of_a_process_and_ends_in_order_after_the_last_restart(command, two, tmp_path):
    """The second process is killed, and fails after the only restart; two other processes complete the run."""
    config, *flags = command
    with start('tools/dist_train.sh', config, 2, *flags, 'default_hooks.failing.type=FailingHook',
               output=tmp_path / 'output.txt', MAX_RESTARTS='1', PYTHONPATH=str(tmp_path)) as process:
        output = process.finish(rc=1)
        assert not process.group_is_alive()
    assert_no_threads(tmp_path, (1, ))  # torchrun's signal may kill the other one before it has written its own
    assert len(re.findall(r'resumed epoch: [23], iter: ', output)) == 1
    assert 'exitcode  : 1 ' in output and '  RuntimeError: the second process fails' in output  # torchrun's report
    with start_two('tools/train.py', *command, '--resume', output=tmp_path / 'output') as ranks:
        for rank in ranks:
            rank.finish()
    assert differences(two / f'epoch_{EPOCHS}.pth', tmp_path / f'work/epoch_{EPOCHS}.pth') == []


@pytest.mark.parametrize('launcher, env, codes', [
    ('slurm', dict(SLURM_JOB_ID='1', SLURM_NTASKS='2', SLURM_NODELIST='localhost'), (0, 0)),
    ('pytorch', dict(PET_RDZV_BACKEND='c10d'), (1, 0))], ids=['slurm', 'elastic'])
def test_a_run_stops_in_order_and_continues_with_another_number_of_processes(
        command, alone, folder, tmp_path, launcher, env, codes):
    """A host of an elastic run that got no signal ends with an error, so that torchrun starts it again."""
    with start_two('tools/train.py', *command, launcher=launcher, output=tmp_path / 'output', **env) as processes:
        processes[0].wait_for_text('Epoch(train) [1][1/3]')
        processes[1].popen.send_signal(signal.SIGUSR1)
        output, _ = [process.finish(code) for process, code in zip(processes, codes)]
    assert_no_threads(tmp_path)
    saved = load(tmp_path / 'work/preempted.pth')['meta']
    assert 'SIGUSR1' in output and 0 < saved['iter'] < ITERATIONS and saved['world_size'] == 2

    # The same total batch: the rest of the run is as if nothing had happened.
    run_tool('train', folder / 'tiny.py', '--work-dir', tmp_path / 'work', '--resume')
    assert not (tmp_path / 'work/preempted.pth').exists()
    assert_close(alone, tmp_path / 'work')


@pytest.mark.parametrize('env, last, code, calls', [
    (dict(REQUEUE='0'), 'preempted.pth', 0, ['srun']),
    ({}, 'preempted.pth', 2, []),  # not in an sbatch script
    (dict(SLURM_JOB_ID='7'), 'preempted.pth', 0, ['srun', 'scontrol requeue 7']),
    (dict(SLURM_JOB_ID='7', SLURM_RESTART_COUNT='1'), 'preempted.pth', 0, ['srun --resume']),
    (dict(SLURM_JOB_ID='7'), 'epoch_8.pth', 0, ['srun']), (dict(SLURM_JOB_ID='7'), 'preempted.pth', 3, ['srun'])])
def test_slurm_queues_again_what_a_signal_has_stopped_and_nothing_else(tmp_path, env, last, code, calls):
    """In place of the tasks, srun names the last checkpoint as SafeCheckpointHook does; --resume completes the run."""
    srun = (f'cd {tmp_path}; echo "$*" > flags\n'
            '[[ $* != *--resume ]] || { echo srun --resume; echo epoch_8.pth > last_checkpoint; exit; }\n'
            f'echo srun; echo {last} > last_checkpoint; exit {code}\n')
    for name, lines in dict(srun=srun, scontrol='echo scontrol "$@"\n').items():
        (tmp_path / name).write_text('#!/usr/bin/env bash\n' + lines)
        (tmp_path / name).chmod(0o755)
    env = dict(PATH=f'{tmp_path}:{os.environ["PATH"]}', GPUS='2', REQUEUE='1') | env
    result = subprocess.run(['tools/slurm_train.sh', 'gpus', 'cvt', 'tiny.py', tmp_path, '--overwrite'], cwd=ROOT,
                            text=True, stdout=subprocess.PIPE,
                            env={**os.environ, 'SRUN_ARGS': '--signal=USR1@60 --exclusive', **env})
    assert result.stdout.splitlines() == calls and result.returncode == code
    assert not calls or (tmp_path / 'flags').read_text().startswith(
        '--partition=gpus --job-name=cvt --gres=gpu:2 --ntasks=2 --ntasks-per-node=2 --cpus-per-task=5 '
        '--kill-on-bad-exit=1 --signal=USR1@60 --exclusive ')
    assert not calls or ('--overwrite' in (tmp_path / 'flags').read_text()) == ('SLURM_RESTART_COUNT' not in env)


# Everything that the untrained detector sees counts as a detection: its files must not be empty. One image a batch as
# for COCO: others in the batch would change the rounding.
SHORT = ['train_cfg.max_iters=2', 'train_cfg.val_interval=2']
TASKS = dict(
    segmentation=('upernet_cvt', r'aAcc: [\d.]+ +mIoU: [\d.]+ +mAcc: [\d.]+', [
        *SHORT, 'model.decode_head.norm_cfg.type=SyncBN']),
    detection=('maskrcnn_cvt', r'coco/bbox_mAP: .*coco/segm_mAP_l: \S+', [
        *SHORT, 'model.test_cfg.rcnn.score_thr=0.', 'val_dataloader.batch_size=1', 'test_dataloader.batch_size=1',
        'val_evaluator.outfile_prefix={}/two', 'test_evaluator.outfile_prefix={}/one']))


@pytest.mark.parametrize('task', TASKS)
def test_evaluation_does_not_depend_on_the_number_of_processes(tmp_path, task):
    """With two processes, after a training with them, it is that of one."""
    name, metric, options = TASKS[task]
    data = generate(tmp_path / 'data', size=64, train=8, val=7, train_per_class=1, val_per_class=1) / task
    flags = (f'configs/{name}_nano_shapes.py', '--data-root', data, '--work-dir', tmp_path, '--cfg-options',
             'train_dataloader.batch_size=2', *(option.format(tmp_path) for option in options))
    with start_two('tools/train.py', *flags, output=tmp_path / 'two') as ranks:
        two = [rank.finish() for rank in ranks][0]
    single = run_tool('test', flags[0], tmp_path / 'iter_2.pth', *flags[1:])
    metrics = [re.findall(metric, text) for text in (single, two)]
    assert len(metrics[0]) == 1 and metrics[0] == metrics[1]
    for kind in ('bbox', 'segm') if task == 'detection' else ():
        detections = (tmp_path / f'one.{kind}.json').read_bytes()
        assert len(detections) > 10000 and detections == (tmp_path / f'two.{kind}.json').read_bytes()


@pytest.mark.parametrize('env, flags', [
    (dict(NNODES='2', NODE_RANK='1', MASTER_ADDR='10.1.1.1', PORT='29511'),
     '--nnodes 2 --node-rank 1 --master-addr 10.1.1.1 --master-port 29511 --nproc-per-node 8 --max-restarts 0'),
    (dict(NNODES='1:2', RDZV='10.1.1.1:29511'),
     '--nnodes 1:2 --rdzv-endpoint 10.1.1.1:29511 --rdzv-id 10.1.1.1:29511 --nproc-per-node 8 --max-restarts 3')])
def test_torchrun_gets_the_flags_of_several_hosts(env, flags):
    command = 'tools/dist_train.sh', 'tiny.py', '8', '--resume'
    printed = subprocess.run(command, cwd=ROOT, env={**os.environ, 'PYTHON': 'echo', **env}, text=True,
                             stdout=subprocess.PIPE).stdout
    assert printed.strip() == f'-m torch.distributed.run {flags} tools/train.py tiny.py --launcher pytorch --resume'


@pytest.mark.parametrize('script, args, launcher', [
    ('dist_test', ('tiny.py', 'a.pth', '2'), 'pytorch'), ('slurm_test', ('gpus', 'cvt', 'tiny.py', 'a.pth'), 'slurm')])
def test_the_scripts_for_tests_pass_everything_on(tmp_path, script, args, launcher):
    """REQUEUE is meant for trainings alone."""
    (tmp_path / 'srun').symlink_to('/bin/echo')
    env = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}', 'PYTHON': 'echo', 'GPUS': '2', 'REQUEUE': '1'}
    result = subprocess.run([f'tools/{script}.sh', *args, '--tta'], cwd=ROOT, env=env, text=True,
                            stdout=subprocess.PIPE, check=True)
    assert re.search(r'--n(proc-per-node|tasks=)[ =]?2 ', result.stdout)
    assert result.stdout.endswith(f' tools/test.py tiny.py a.pth --launcher {launcher} --tta\n')


@pytest.mark.parametrize('gpus, expected', [(8, '5'), (1, '0'), (0, '5')])  # of the host, of the task alone, CPUs
@mock.patch.dict('os.environ')
def test_variables_from_slurm(gpus, expected, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: gpus)
    for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_PORT'):
        os.environ.pop(name, None)
    slurm = dict(JOB_ID=20007, STEP_ID=2, PROCID=13, NTASKS=16, NODELIST='localhost', LOCALID=5)
    os.environ.update({f'SLURM_{name}': str(value) for name, value in slurm.items()}, MASTER_ADDR='127.0.0.1')
    with mock.patch('mmengine.dist.init_dist') as group:  # MMEngine makes the process group
        setup_distributed('slurm', Config())
    assert group.call_count == 1
    names = ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'SLURM_LOCALID', 'MASTER_PORT')
    assert [os.environ[name] for name in names] == ['13', '16', expected, expected, '22007']
