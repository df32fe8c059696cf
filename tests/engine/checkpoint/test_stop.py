"""A run that receives a signal saves and ends with exit code 0, at any time and for any process that receives it."""
import multiprocessing
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist
from tiny_training import call, load, start, write_config

from cvt_dense.engine.checkpoint import stop

FLAGS = {
    'classification': ('train_cfg.max_epochs=1000', 'train_cfg.val_interval=2', 'val_dataloader.batch_size=1'),
    'detection': ('train_cfg.max_iters=1000', 'train_cfg.val_interval=3', 'val_dataloader.batch_size=1'),
    'segmentation': ('train_cfg.max_iters=1000', 'param_scheduler.1.end=1000', 'train_cfg.val_interval=3',
                     'val_dataloader.batch_size=1'),
}
CONFIGS = dict(detection='maskrcnn_cvt_nano_shapes', segmentation='upernet_cvt_nano_shapes')
# The line of the log after which the signal is sent.
MOMENTS = dict(before=r'(Epoch|Iter)\(train\).*\[ *2/', inside=r'(Epoch|Iter)\(val\).*\[ *1/',
               after=r'(?s)(Epoch|Iter)\(val\).*(Epoch|Iter)\(train\)')


@pytest.fixture(scope='module')
def folder(run_tool, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('stop')
    write_config(folder)
    run_tool('tools/_shapes.py', folder / 'shapes', '--train', 8, '--val', 16,
             '--train-per-class', 1, '--val-per-class', 1)
    return folder


@pytest.mark.parametrize('task, moment', [
    ('classification', 'before'), ('detection', 'inside'), ('segmentation', 'after')])
def test_signal_to_all_processes(folder, tmp_path, task, moment):
    """With workers of both loaders that outlive an epoch: none may take the signal for its own."""
    options = [f'{loader}_dataloader.{option}' for loader in ('train', 'val')
               for option in ('num_workers=1', 'persistent_workers=True')]
    command = ['tools/train.py', folder / 'tiny.py', '--work-dir', tmp_path]
    if task in CONFIGS:
        command[1:2] = [f'configs/{CONFIGS[task]}.py', '--data-root', folder / 'shapes' / task]
        options += ['train_dataloader.batch_size=2']
    options += ['default_hooks.logger.interval=1']
    with start(*command, '--cfg-options', *FLAGS[task], *options, output=tmp_path / 'output.txt') as process:
        process.wait_for(lambda: re.search(MOMENTS[moment], process.text()) is not None)
        os.killpg(process.popen.pid, signal.SIGTERM)
        output = process.finish()
        assert not process.group_is_alive()
    saved = load(tmp_path / 'preempted.pth')
    assert f'SIGTERM: the run was saved after iteration {saved["meta"]["iter"]} and ends' in output
    assert saved['state_dict'] and saved['optimizer']['state']
    if moment == 'inside':  # broken off
        assert not (tmp_path / 'last_evaluation').exists()


# Which of two processes receives the signal, after which step, and batches of an evaluation in each.
TRAININGS = [(0, 1, None), (1, 14, None)]
EVALUATIONS = [(0, 14, (40, 37)), (1, 14, (40, 37)), (1, 14, (37, 40)), (1, 0, (0, 5)), (None, 0, (40, 37))]


def play(rank: int, folder: Path, answers: multiprocessing.Queue) -> None:
    """Run the cases; put (rank, [(signal, step after which it was answered)])."""
    dist.init_process_group('gloo', init_method=f'file://{folder}/group', rank=rank, world_size=2)
    answered = []
    for receiver, at, batches in TRAININGS + EVALUATIONS:
        runner = SimpleNamespace(iter=0, max_iters=1000, world_size=2, train_loop=None, val_loop=None,
                                 val_dataloader=range(batches[rank] if batches else 0))
        signals = stop.StopSignals()
        signals.watch(runner)
        number, done = 0, 0
        for done in range(0 if batches else 1, (batches[rank] if batches else 100) + 1):
            if rank == receiver and done == at:
                signal.raise_signal(signal.SIGTERM)
            runner.iter = done - 1
            number = signals.after_val_iter(runner, done - 1) if batches else signals.after_train_iter(runner)
            if number:
                break
        signals.unwatch()
        answered.append((number, done))
    answers.put((rank, answered))
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_answer_within_ten_steps(tmp_path):
    """Whichever received the signal, and although an evaluation may have more batches in one of them."""
    context = multiprocessing.get_context('fork')
    answers = context.Queue()
    processes = [context.Process(target=play, args=(rank, tmp_path, answers)) for rank in range(2)]
    for process in processes:
        process.start()
    first, second = (answered for _, answered in sorted(answers.get(timeout=300) for _ in processes))
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    for (receiver, at, batches), one, other in zip(TRAININGS + EVALUATIONS, first, second):
        if receiver is None:
            assert [one, other] == [(0, batches[0]), (0, batches[1])]
        else:
            assert one == other and one[0] == signal.SIGTERM and at <= one[1] < at + 10


@pytest.mark.parametrize('moment', ['train', 'val'])
def test_two_processes_of_which_one_receives_a_signal(folder, tmp_path, moment):
    """While gradients are accumulated; both stop after the same step of the optimizer."""
    (tmp_path / 'signalling.py').write_text(
        'import signal\n'
        'from mmengine.hooks import Hook\n'
        'from mmengine.registry import HOOKS\n'
        '@HOOKS.register_module()\n'
        'class SignallingHook(Hook):\n'
        f'    def before_{moment}_iter(self, runner, batch_idx, data_batch=None):\n'
        '        if runner.rank == 1 and runner.iter >= 12 and batch_idx == 2:\n'
        '            signal.raise_signal(signal.SIGUSR1)\n')
    config = tmp_path / 'signalling_config.py'
    config.write_text(f'_base_ = {str(folder / "tiny.py")!r}\n'
                      "custom_imports = dict(imports=['signalling'])\n"
                      "default_hooks = dict(signalling=dict(type='SignallingHook'))\n")
    options = ['optim_wrapper.accumulative_counts=4', 'train_dataloader.batch_size=6', 'train_cfg.max_epochs=1000',
               'val_dataloader.batch_size=1']
    output = call('tests/two_ranks.py', 'tools/train.py', config, '--work-dir', tmp_path / 'work', '--cfg-options',
                  *options, output=tmp_path / 'output.txt', PYTHONPATH=str(tmp_path))
    saved = load(tmp_path / 'work' / 'preempted.pth')['meta']
    assert f'SIGUSR1: the run was saved after iteration {saved["iter"]} and ends' in output
    if moment == 'train':  # the signal comes in iteration 15
        assert 15 <= saved['iter'] <= 24 and saved['iter'] % 4 == 0
    else:  # the signal comes in the first evaluation, after 12 iterations, of 50 batches a process
        assert saved['iter'] == 12
        assert max(map(int, re.findall(r'Epoch\(val\) +\[\d+\]\[ *(\d+)/50\]', output))) <= 12
