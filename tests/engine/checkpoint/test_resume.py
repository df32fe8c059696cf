"""A run that is stopped or crashes at any place ends, resumed, with the bits of a run that was not disturbed.

Here with runs of milliseconds; tests/engine/test_faults.py disturbs the three tasks.
"""
import signal
from math import cos, pi
from pathlib import Path

import pytest
from engine.checkpoint.quick_runs import ITERATIONS, run
from tiny_training import Crash, Disturb, assert_same_end, crash, load, stop

from cvt_dense.errors import UserError


@pytest.fixture(autouse=True)
def _handlers():
    old = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGTERM, old[0])
    signal.signal(signal.SIGUSR1, old[1])


@pytest.fixture(scope='module', params=[('epochs', 1), ('epochs', 3), ('iterations', 3)],
                ids=lambda param: f'{param[0]}-{param[1]}')
def undisturbed(request, tmp_path_factory) -> tuple[str, int, Path]:
    loop, accumulated = request.param  # epochs of four iterations end between two steps of three
    folder = tmp_path_factory.mktemp('undisturbed')
    run(folder, loop, accumulated)
    return loop, accumulated, folder


@pytest.mark.parametrize('mode, iterations', [('train', (2, 4, 7, 11)), ('val', (4, 12))])
@pytest.mark.parametrize('action', [stop, crash])
def test_disturbed_in_the_training_or_an_evaluation(undisturbed, tmp_path, action, mode, iterations):
    """A stop waits for the optimizer's next step."""
    loop, accumulated, expected = undisturbed
    for iteration in iterations:
        folder, done = tmp_path / str(iteration), iteration + (mode == 'train')
        with pytest.raises(SystemExit if action is stop else Crash):
            run(folder, loop, accumulated, Disturb(action, iteration, mode))
        if action is stop:
            meta = load(folder / 'preempted.pth')['meta']
            assert meta['iter'] == -(-done // accumulated) * accumulated
        run(folder, loop, accumulated)
        assert_same_end(folder, expected)


@pytest.mark.parametrize('schedule', [True, False])
def test_another_batch_size(tmp_path, schedule, capsys):
    """The epoch continues at the same fraction of the images; the learning rate follows the total batch."""
    settings = {} if schedule else dict(param_scheduler=None)
    with pytest.raises(SystemExit):
        run(tmp_path, disturb=Disturb(stop, 5, 'train'), **settings)
    assert load(tmp_path / 'preempted.pth')['meta']['iter'] == 6
    runner = run(tmp_path, **{'train_dataloader.batch_size': 4}, **settings)
    assert runner.iter == 6  # three epochs of two; it went on with the fourth
    group = runner.optim_wrapper.param_groups[0]
    expected = 0.02 * (1 + cos(pi * 5 / 6)) / 2 if schedule else 0.02  # after five of six iterations of the cosine
    assert group.get('initial_lr', 0.02) == 0.02 and group['lr'] == pytest.approx(expected, rel=1e-3)
    assert 'load_from' not in capsys.readouterr().out
    run(tmp_path, **{'optim_wrapper.optimizer.lr': 0.05}, **settings)
    assert 'load_from' in capsys.readouterr().out  # how another learning rate would be taken


def test_a_longer_training(tmp_path, capsys):
    """Its rate is that of a run that began with its length; a rate of 0 for the rest of a training is an error."""
    shorter, longer = ([dict(type='PolyLR', eta_min=0., end=end, by_epoch=False)] for end in (ITERATIONS, 24))
    run(tmp_path, 'iterations', param_scheduler=shorter)
    with pytest.raises(UserError, match='param_scheduler.0'):
        run(tmp_path, 'iterations', param_scheduler=shorter, **{'train_cfg.max_iters': 24})
    runner = run(tmp_path, 'iterations', param_scheduler=longer, **{'train_cfg.max_iters': 18})
    assert runner.optim_wrapper.param_groups[0]['lr'] == pytest.approx(0.01 * 5 / 23)  # it is 0 before the last one
    assert 'param_scheduler' in capsys.readouterr().out  # a training that ends before its schedule
