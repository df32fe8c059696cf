"""A run that receives a signal saves and ends with exit code 0, at any time and for any process that receives it."""
import multiprocessing
import os
import signal
from types import SimpleNamespace

import torch.distributed as dist
from tiny_training import load, start

from cvt_dense.engine.checkpoint import stop
from cvt_dense.recipes.shapes import generate


def test_signal_to_all_processes(tmp_path):
    """In an evaluation, with workers of both loaders that outlive an epoch: none may take the signal for its own."""
    data = generate(tmp_path / 'shapes', train=8, val=16, train_per_class=1, val_per_class=1) / 'segmentation'
    options = [f'{loader}_dataloader.{option}' for loader in ('train', 'val')
               for option in ('num_workers=1', 'persistent_workers=True')]
    options += ['train_cfg.max_iters=1000', 'param_scheduler.1.end=1000', 'train_cfg.val_interval=3',
                'train_dataloader.batch_size=2', 'val_dataloader.batch_size=1', 'default_hooks.logger.interval=1']
    with start('tools/train.py', 'configs/upernet_cvt_nano_shapes.py', '--work-dir', tmp_path, '--data-root', data,
               '--cfg-options', *options, output=tmp_path / 'output.txt') as process:
        process.wait_for_text('Iter(val)')
        os.killpg(process.popen.pid, signal.SIGTERM)
        process.finish()
        assert not process.group_is_alive()
    saved = load(tmp_path / 'preempted.pth')
    assert saved['meta']['iter'] == 3 and saved['optimizer']['state']


# Which of two processes receives the signal, after which step, and batches of an evaluation in each.
TRAININGS = [(0, 1, None), (1, 14, None)]
EVALUATIONS = [(0, 14, (40, 37)), (1, 14, (37, 40)), (1, 0, (0, 5)), (None, 0, (40, 37))]


def play(rank: int, folder: str, answers: multiprocessing.Queue) -> None:
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
