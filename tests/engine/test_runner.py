"""Several trainings in one process."""
import re
import threading

import pytest
from engine.checkpoint.quick_runs import ITERATIONS, run

from cvt_dense.curves import Curves
from cvt_dense.engine.checkpoint import find_checkpoint
from cvt_dense.errors import UserError


def test_trainings_one_after_the_other_have_their_own_curves(tmp_path):
    """MMDetection's and MMSegmentation's configs give every run's visualizer the same name."""
    settings = dict(visualizer=dict(type='Visualizer', name='visualizer', vis_backends=[dict(type='LocalVisBackend')]))
    settings['default_hooks.logger'] = dict(_delete_=True, type='LoggerHook', interval=1)
    for name in ('first', 'second'):
        run(tmp_path / name, **settings)
    for name in ('first', 'second'):
        assert sum(not point.evaluation for point in Curves(tmp_path / name).points) == ITERATIONS


def test_the_setting_that_is_refused_is_named(tmp_path):
    with pytest.raises(UserError, match='optim_wrapper'):
        run(tmp_path, **{'optim_wrapper.optimizer.lr': -1.})


def test_a_training_in_a_thread(tmp_path):
    """Python handles signals in the main thread alone."""
    thread = threading.Thread(target=run, args=(tmp_path, ))
    thread.start()
    thread.join()
    assert find_checkpoint(tmp_path) == str(tmp_path / 'epoch_3.pth')


def test_a_slow_training_logs_a_line_before_the_loggers_first(tmp_path, monkeypatch):
    """Once, with the time that remains; a fast one has the logger's line by then."""
    for name, seconds in (('slow', 0), ('fast', 600)):
        monkeypatch.setattr('cvt_dense.engine.hooks.summary.EARLY', seconds)
        logger = dict(_delete_=True, type='LoggerHook', interval=2)
        run(tmp_path / name, log_level='INFO', **{'default_hooks.logger': logger})
    slow, fast = ([line for file in (tmp_path / name).glob('*/*.log') for line in file.read_text().splitlines()
                   if '(train)' in line] for name in ('slow', 'fast'))
    assert len(slow) == len(fast) + 1 > 2 and re.search(r'\[1\]\[1/\d+\].* eta: .* loss: ', slow[0]), slow
