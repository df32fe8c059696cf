"""A run that is stopped or crashes at any place ends, resumed, with the bits of a run that was not disturbed.

Here with runs of milliseconds; tests/engine/test_crashes.py disturbs the three tasks.
"""
import signal
from math import cos, pi
from pathlib import Path

import pytest
from engine.checkpoint.quick_runs import ITERATIONS, run
from tiny_training import Crash, Disturb, assert_same_end, crash, load, stop

from cvt_dense.engine.checkpoint import Stopped
from cvt_dense.errors import UserError


@pytest.fixture(scope='module', params=[('epochs', 1), ('epochs', 3), ('iterations', 3)],
                ids=lambda param: f'{param[0]}-{param[1]}')
def undisturbed(request, tmp_path_factory) -> tuple[str, int, Path]:
    loop, accumulated = request.param  # epochs of four iterations end between two steps of three
    folder = tmp_path_factory.mktemp('undisturbed')
    run(folder, loop, accumulated)
    return loop, accumulated, folder


@pytest.mark.slow
@pytest.mark.parametrize('mode, iterations', [('train', (2, 4, 7, 11)), ('val', (4, 12))])
@pytest.mark.parametrize('action', [stop, crash])
def test_disturbed_in_the_training_or_an_evaluation(undisturbed, tmp_path, action, mode, iterations):
    """A stop waits for the optimizer's next step."""
    loop, accumulated, expected = undisturbed
    for iteration in iterations:
        folder, done = tmp_path / str(iteration), iteration + (mode == 'train')
        with pytest.raises(Stopped if action is stop else Crash):
            run(folder, loop, accumulated, Disturb(action, iteration, mode))
        # As before a run that failed; another signal does not kill one that has saved.
        assert (signal.signal(signal.SIGTERM, signal.SIG_DFL) == signal.SIG_DFL) == (action is crash)
        if action is stop:
            assert load(folder / 'preempted.pth')['meta']['iter'] == -(-done // accumulated) * accumulated
        run(folder, loop, accumulated)
        assert_same_end(folder, expected)


@pytest.mark.parametrize('schedule', [True, False])
def test_another_batch_size(tmp_path, schedule, capsys):
    """The epoch continues at the same fraction of the images; the learning rate follows the total batch."""
    settings = {} if schedule else dict(param_scheduler=None)
    with pytest.raises(Stopped):
        run(tmp_path, disturb=Disturb(stop, 5, 'train'), **settings)
    assert load(tmp_path / 'preempted.pth')['meta']['iter'] == 6
    runner = run(tmp_path, **{'train_dataloader.batch_size': 4}, **settings)
    assert runner.iter == 6  # three epochs of two; it went on with the fourth
    group = runner.optim_wrapper.param_groups[0]
    expected = 0.02 * (1 + cos(pi * 5 / 6)) / 2 if schedule else 0.02  # after five of six iterations of the cosine
    assert group.get('initial_lr', 0.02) == 0.02 and group['lr'] == pytest.approx(expected, rel=1e-3)
    assert 'optim_wrapper' not in capsys.readouterr().out
    runner = run(tmp_path, **{'optim_wrapper.optimizer.lr': 0.05}, **settings)
    assert runner.optim_wrapper.param_groups[0].get('initial_lr', 0.05) == 0.05
    assert 'optim_wrapper.optimizer.lr' in capsys.readouterr().out
    with pytest.raises(Stopped):
        run(tmp_path / 'early', disturb=Disturb(stop, 0), **settings)
    runner = run(tmp_path / 'early', **{'train_dataloader.batch_size': 4}, **settings)  # it goes back to its beginning
    assert runner.optim_wrapper.param_groups[0].get('initial_lr', 0.02) == 0.02


def test_a_run_that_was_stopped_in_its_last_evaluation_ends(undisturbed, tmp_path):
    settings = {'default_hooks.checkpoint.save_best': None}
    with pytest.raises(Stopped):
        run(tmp_path, *undisturbed[:2], Disturb(stop, ITERATIONS, 'val'), **settings)
    run(tmp_path, *undisturbed[:2], **settings)
    settings |= dict(val_dataloader=None, val_cfg=None, val_evaluator=None)
    run(tmp_path / 'plain', 'iterations', 3, Disturb(stop, ITERATIONS - 2), **settings)
    assert not [*tmp_path.rglob('preempted.pth')]  # with which Slurm would queue the job again and again


def test_fewer_images(tmp_path):
    with pytest.raises(Stopped):
        run(tmp_path, disturb=Disturb(stop, 2, 'train'))
    assert run(tmp_path, **{'train_dataloader.dataset.length': 4}).iter == 6  # three epochs of two


PLATEAU = dict(param_scheduler=[dict(
    type='ReduceOnPlateauLR', monitor='score', rule='greater', threshold=1e9, threshold_rule='abs', patience=1)])


def test_a_reduced_rate_is_kept(tmp_path):
    rates = [run(tmp_path, **PLATEAU, **{'train_cfg.max_epochs': epochs}).optim_wrapper.get_lr()['lr']
             for epochs in (3, 4)]
    assert rates[1] <= rates[0] < [0.01]


def steps(*milestones):
    return [dict(type='MultiStepLR', by_epoch=False, milestones=list(milestones), end=ITERATIONS)]


@pytest.mark.parametrize('before, after', [
    (dict(param_scheduler=steps(10)), dict(param_scheduler=steps(6))),
    (dict(param_scheduler=steps(10)), dict(param_scheduler=[*steps(6), *steps(7)])),
    (PLATEAU, dict(param_scheduler=steps(6))),
    (dict(param_scheduler=[dict(type='OneCycleLR', eta_max=0.1, total_steps=ITERATIONS, by_epoch=False)]),
     {'optim_wrapper.optimizer.weight_decay': 0.3}),
    ({}, {'optim_wrapper.optimizer.weight_decay': 0.3, 'optim_wrapper.optimizer.lr': 0.05}),
    ({}, {'train_cfg.max_iters': 18, 'param_scheduler.0.end': 5})])
def test_other_settings_take_effect(tmp_path, capsys, before, after):
    """The optimizer is that of a run which began with them, but for what it has learnt; the log names them."""
    with pytest.raises(Crash):
        run(tmp_path / 'resumed', 'iterations', disturb=Disturb(crash, 5), **before)
    capsys.readouterr()
    resumed = run(tmp_path / 'resumed', 'iterations', **before | after)
    named = next(iter(after))
    assert named in capsys.readouterr().out
    whole = run(tmp_path / 'whole', 'iterations', **before | after)
    groups, schedules = ([{key: value for key, value in group.items() if key != 'params'}
                          for group in runner.optim_wrapper.param_groups] for runner in (resumed, whole)), (
        [{key: schedule.state_dict()[key] for key in ('last_step', 'end', '_last_value')}
         for schedule in runner.param_schedulers] for runner in (resumed, whole))
    assert next(groups) == next(groups) and next(schedules) == next(schedules)
    run(tmp_path / 'resumed', 'iterations', **before | after)
    assert named not in capsys.readouterr().out  # the last checkpoint has them


def test_schedules_by_epoch_are_not_early(tmp_path):
    settings = dict(param_scheduler=[dict(type='MultiStepLR', milestones=[2], end=9)])
    with pytest.raises(Stopped):
        run(tmp_path, disturb=Disturb(stop, 3), **settings)  # after the last iteration of the first epoch
    runner = run(tmp_path, **settings, **{'optim_wrapper.optimizer.lr': 0.05})
    assert runner.param_schedulers[0].last_step == 3


@pytest.mark.parametrize('settings', [
    {'optim_wrapper.optimizer': dict(_delete_=True, type='SGD', lr=0.1)},
    {'optim_wrapper.paramwise_cfg': dict(custom_keys={'backbone': dict(lr_mult=0.1)})},
    dict(custom_hooks=[dict(type='cvt_dense.SeedHook')])], ids=['optimizer', 'groups', 'averages'])
def test_settings_that_the_saved_state_is_not_for(tmp_path, settings):
    with pytest.raises(Crash):
        run(tmp_path, disturb=Disturb(crash, 5))
    with pytest.raises(UserError, match='load_from'):
        run(tmp_path, **settings)
    run(tmp_path)


class Evaluations(Disturb):
    """Stop as a Disturb does, and note the iterations at which evaluations begin."""

    def __init__(self, *args):
        super().__init__(*args)
        self.begun = []

    def before_val(self, runner):
        self.begun.append(runner.iter)


def test_an_evaluation_is_due_by_the_interval_of_its_iteration(tmp_path):
    settings = {'train_cfg.dynamic_intervals': [(9, 2)]}
    first, second = Evaluations(stop, 10, 'val'), Evaluations(stop, -1)
    with pytest.raises(Stopped):
        run(tmp_path, 'iterations', disturb=first, **settings)
    run(tmp_path, 'iterations', disturb=second, **settings)
    assert first.begun == [4, 8, 10] and second.begun == [10, 12]
