"""A run that receives a signal saves and ends with exit code 0, at any time and for any process that receives it."""
import multiprocessing
import os
import signal
from pathlib import Path
from unittest import mock

import pytest
import torch.distributed as dist
from tiny_training import load, start

from cvt_dense.engine.checkpoint import StopHook, Stopped
from cvt_dense.shapes import generate

pytestmark = pytest.mark.slow


def test_signal_to_all_processes(tmp_path):
    """In an evaluation, with workers of both loaders that outlive an epoch: none may take the signal for its own."""
    # The signal comes before the evaluation of so many images ends, also where this process has to wait.
    data = generate(tmp_path / 'shapes', size=64, train=8, val=100, train_per_class=1, val_per_class=1) / 'segmentation'
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
CASES = [(0, 1, None), (1, 14, None), (0, 14, (40, 37)), (1, 14, (37, 40)), (1, 0, (0, 5)), (None, 0, (40, 37))]


def steps_until_stop(folder: Path, rank: int, receiver: int | None, at: int,
                     batches: tuple[int, int] | None) -> int | None:
    """Return after how many iterations, or batches of an evaluation, the process of ``rank`` stops; None: at none."""
    runner = mock.MagicMock(iter=0, max_iters=1000, world_size=2, train_loop=None, val_loop=None, hooks=[],
                            work_dir=folder, val_dataloader=range(batches[rank] if batches else 0))
    hook = StopHook()
    hook.before_train(runner)
    try:
        for done in range(0 if batches else 1, (batches[rank] if batches else 100) + 1):
            if rank == receiver and done == at:
                signal.raise_signal(signal.SIGTERM)
            runner.iter = done - 1
            if not batches:
                hook.after_train_iter(runner, done - 1)
            elif done:
                hook.after_val_iter(runner, done - 1)
            else:
                hook.before_val_epoch(runner)
        return None
    except Stopped:
        return done
    finally:
        hook.after_train(runner)


def play(rank: int, folder: Path, answers: multiprocessing.Queue) -> None:
    dist.init_process_group('gloo', init_method=f'file://{folder}/group', rank=rank, world_size=2)
    answers.put((rank, [steps_until_stop(folder, rank, *case) for case in CASES]))
    dist.barrier()
    dist.destroy_process_group()


def test_two_processes_stop_together_within_ten_steps(tmp_path):
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
    for (receiver, at, _), step, other in zip(CASES, first, second):
        assert step == other and (step is None if receiver is None else at <= step < at + 10)
