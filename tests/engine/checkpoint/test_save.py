"""Which files SafeCheckpointHook writes and deletes; test_resume.py stops and resumes runs."""
import shutil

import pytest
from engine.checkpoint.quick_runs import run
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS

from cvt_dense.engine.checkpoint import find_checkpoint
from cvt_dense.errors import UserError


@METRICS.register_module()
class Scores(BaseMetric):
    """Returns the scores that it was given, one after the other."""

    def __init__(self, scores):
        super().__init__()
        self.scores = iter(scores)

    def process(self, data_batch, data_samples):
        self.results.append(0)

    def compute_metrics(self, results):
        score = next(self.scores)
        return {} if score is None else dict(score=score, loss=(score - 0.2)**2)


def train(work_dir, scores, epochs, hooks=(), **checkpoint):
    run(work_dir, val_evaluator=dict(type='Scores', scores=scores), param_scheduler=None, custom_hooks=list(hooks), **{
        'train_cfg.max_epochs': epochs, **{f'default_hooks.checkpoint.{key}': checkpoint[key] for key in checkpoint}})


def names(folder):
    return sorted(path.name for path in folder.glob('*.pth'))


@pytest.mark.parametrize('copied', [False, True])
def test_a_better_one_replaces_the_best_of_its_own_folder(tmp_path, copied):
    first = tmp_path / 'first'
    train(first, [0.5, 0.4], epochs=2)
    assert names(first) == ['best_score_epoch_1.pth', 'epoch_2.pth']
    run = shutil.copytree(first, tmp_path / 'copy') if copied else first
    assert find_checkpoint(str(run)) == str(run / 'epoch_2.pth')
    train(run, [0.4, 0.9], epochs=3)  # the checkpoint was written before epoch 2's evaluation
    assert names(run) == ['best_score_epoch_3.pth', 'epoch_3.pth']
    if copied:
        assert names(first) == ['best_score_epoch_1.pth', 'epoch_2.pth']


def test_the_first_metric_and_several_metrics(tmp_path):
    """``save_best='auto'`` takes the first metric; resumed, a run may compare by another one."""
    train(tmp_path / 'auto', [0.1, 0.3, 0.2], epochs=3, save_best='auto')
    assert names(tmp_path / 'auto') == ['best_score_epoch_2.pth', 'epoch_3.pth']
    train(tmp_path / 'auto', [0.2, 0.4], epochs=4, save_best='loss', rule='greater')  # below the best score
    assert names(tmp_path / 'auto') == ['best_loss_epoch_4.pth', 'best_score_epoch_2.pth', 'epoch_4.pth']
    train(tmp_path / 'two', [0.1, 0.3, 0.2], epochs=3, save_best=['score', 'loss'], rule=['greater', 'less'])
    assert names(tmp_path / 'two') == ['best_loss_epoch_3.pth', 'best_score_epoch_2.pth', 'epoch_3.pth']
    with pytest.raises(UserError, match='save_best'):
        train(tmp_path / 'none', [0.1], epochs=1, save_best='mIoU')
    with pytest.raises(UserError, match='monitor'):
        train(tmp_path / 'patience', [0.1], epochs=1, hooks=[dict(
            type='cvt_dense.EarlyStoppingHook', monitor='mIoU', patience=1)])


def test_an_evaluation_that_fails_costs_no_training(tmp_path):
    """The first score is missing, and no checkpoint is due before the third epoch."""
    with pytest.raises(StopIteration):
        train(tmp_path, [], epochs=3, interval=3)
    assert names(tmp_path) == ['preempted.pth']
    train(tmp_path, [0.5] * 3, epochs=3, interval=3)
    assert names(tmp_path) == ['best_score_epoch_1.pth', 'epoch_3.pth']


def test_an_evaluation_without_detections_is_skipped(tmp_path):
    """MMDetection's metric has no result then; it neither ends the run nor counts as one without a better score."""
    hooks = [dict(type='cvt_dense.EarlyStoppingHook', monitor='score', patience=1)]
    train(tmp_path, [None, None, 0.3, None, 0.2, 0.4], epochs=6, hooks=hooks)
    assert names(tmp_path) == ['best_score_epoch_3.pth', 'epoch_5.pth']


@pytest.mark.parametrize('accumulated, interval, last', [(1, 1, 2), (3, 1, 2), (3, 2, 4)])
def test_early_stopping_saves_where_it_ends(tmp_path, accumulated, interval, last):
    run(tmp_path, 'iterations', accumulated, val_evaluator=dict(type='Scores', scores=[0.5, 0.4, 0.4]), custom_hooks=[
        dict(type='cvt_dense.EarlyStoppingHook', monitor='score', patience=1)], **{
            'train_cfg.val_interval': interval, 'default_hooks.checkpoint.interval': 100})
    assert names(tmp_path) == [f'best_score_iter_{interval}.pth', f'iter_{last}.pth']


@pytest.mark.parametrize('stops', [(), (1, ), (2, 4), (5, )])
def test_early_stopping_survives_resuming(tmp_path, stops):
    """The best is the score after epoch 2; a run that has ended does not go on."""
    scores, hooks = [0.5, 0.505, 0.4, 0.504, 0.505, 0.9, 0.9], [dict(
        type='cvt_dense.EarlyStoppingHook', monitor='score', patience=3)]
    done = 0
    for epochs in (*stops, 7):
        # A resumed run repeats the evaluation of its checkpoint, unless that was written again with the result.
        repeated = done and not (tmp_path / f'best_score_epoch_{done}.pth').exists()
        train(tmp_path, scores[done - repeated:], epochs, hooks=hooks)
        done = epochs
    assert [name for name in names(tmp_path) if name.startswith('epoch')] == ['epoch_5.pth']
