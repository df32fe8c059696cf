"""Schedules that do not fit the length of a training are named before it, which has three epochs of four batches."""
import pytest
from engine.checkpoint.quick_runs import ITERATIONS, build, settings
from launch.building import load
from mmengine.hooks import Hook

from cvt_dense.engine.schedules import planned_rates
from cvt_dense.errors import UserError
from cvt_dense.launch.checks.schedule import check_schedule


def check(loop='epochs', **options):
    check_schedule(load(settings('nowhere', loop, **options), 'train'))


WARM_UP = dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=3)


def cosine(length, **settings):
    return dict(type='CosineAnnealingLR', T_max=length, end=length, eta_min_ratio=0.1, **settings)


def poly(end, **settings):
    return dict(type='PolyLR', by_epoch=False, eta_min=0., end=end, **settings)


def steps(*milestones, **settings):
    return dict(type='MultiStepLR', milestones=list(milestones), **settings)


FITTING = [
    ('epochs', [WARM_UP, cosine(3)]), ('epochs', [cosine(3, convert_to_iter_based=True)]), ('epochs', [WARM_UP]),
    ('epochs', [steps(2, end=3)]), ('epochs', []), ('iterations', [WARM_UP, poly(ITERATIONS, begin=3)]),
    ('iterations', [dict(type='CosineRestartLR', periods=[6, 6], restart_weights=[1, .5], by_epoch=False, eta_min=0)]),
    ('epochs', [dict(type='ConstantMomentum', factor=0.5, end=1), cosine(3)]),
    ('iterations', [dict(type='ReduceOnPlateauLR', monitor='score', rule='greater')])]
WASTING = [
    ('epochs', [WARM_UP, cosine(2)]), ('epochs', [cosine(4)]), ('epochs', [cosine(6, convert_to_iter_based=True)]),
    ('epochs', [steps(2, 5)]), ('epochs', [steps(1, end=2)]), ('epochs', [steps(1, 2, by_epoch=False)]),
    ('epochs', [dict(WARM_UP, end=10**9)]), ('iterations', [cosine(10, by_epoch=False)]),
    ('iterations', [poly(24)]), ('iterations', [steps(8, 16, by_epoch=False)]),
    ('iterations', [dict(type='OneCycleLR', eta_max=0.1, total_steps=24, by_epoch=False)]),
    ('epochs', [dict(type='CosineAnnealingLR', T_max=1)]), ('iterations', [cosine(1, convert_to_iter_based=True)])]
WRONG = [
    ('epochs', [poly(6)]), ('epochs', [dict(type='PolyLR', eta_min=0., end=2)]),
    ('iterations', [steps(4, 8)]), ('iterations', [WARM_UP, cosine(3)]), ('epochs', [cosine(3, begin=5)])]


@pytest.mark.parametrize('loop, schedules, told', [
    *((*item, False) for item in FITTING), *((*item, True) for item in WASTING)])
def test_a_schedule_that_ends_before_or_after_the_training_is_told(capsys, loop, schedules, told):
    check(loop, param_scheduler=schedules)
    assert ('param_scheduler' in capsys.readouterr().out) == told


@pytest.mark.parametrize('loop, schedules', WRONG)
def test_schedules_by_which_nothing_is_learnt(loop, schedules):
    with pytest.raises(UserError, match='param_scheduler'):
        check(loop, param_scheduler=schedules)


def test_an_epoch_that_never_ends():
    with pytest.raises(UserError, match='sampler'):
        check(**{'train_dataloader.sampler.type': 'InfiniteSampler'})


def test_a_run_by_iterations_that_would_be_saved_by_epochs():
    with pytest.raises(UserError, match='default_hooks.checkpoint.by_epoch'):
        check('iterations', **{'default_hooks.checkpoint.by_epoch': True})


def test_the_best_by_whichever_metric_is_first():
    with pytest.raises(UserError, match='save_best'):
        check(**{'default_hooks.checkpoint': dict(type='CheckpointHook', save_best='auto')})


class Rates(Hook):
    """Note the learning rate of each iteration."""

    def __init__(self):
        self.rates = []

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        self.rates += runner.optim_wrapper.get_lr()['lr'][:1]


@pytest.mark.parametrize('loop, unit', [('epochs', 2), ('iterations', 1)])
def test_the_curve_is_that_of_the_training(tmp_path, loop, unit):
    options = {'train_dataloader.batch_size': 4, 'auto_scale_lr.base_batch_size': 8}
    runner, hook = build(tmp_path, loop, **options), Rates()
    curve = planned_rates(settings(tmp_path, loop, **options), runner.train_dataloader)
    runner.register_hook(hook)
    runner.train()
    assert len(hook.rates) == curve.length * unit and max(hook.rates) == max(rate for _, rate in curve.points)
    assert curve.points[0][0] == 0 and curve.points[-1][1] == hook.rates[-1]
    assert [hook.rates[round(place * unit)] for place, _ in curve.points] == [rate for _, rate in curve.points]
