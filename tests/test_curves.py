"""Curves of runs, read over all starts of a run."""
import json
import shutil
from pathlib import Path

import pytest
from load_tool import ROOT

from cvt_dense.curves import Curves


def write(folder: Path, start: str, *records: dict) -> None:
    file = folder / start / 'vis_data' / 'scalars.json'
    file.parent.mkdir(parents=True)
    file.write_text('\n'.join(map(json.dumps, records)) + '\n')


def trained(step, loss, epoch=None):
    return dict(lr=1e-3, loss=loss, time=3.6, iter=step, step=step, **(dict(epoch=epoch) if epoch else {}))


@pytest.fixture
def run(tmp_path) -> Path:
    """A run of 3 epochs of 4 iterations: killed in the third, which the next start begins again."""
    return shutil.copytree(ROOT / 'tests/data/curves', tmp_path / 'run')


def test_all_starts_of_a_run_are_one(run):
    curves = Curves(run)
    assert [(p.iteration, p.values['loss']) for p in curves.points if not p.evaluation] == [
        (2, 5.), (4, 4.), (6, 3.), (8, 2.5), (10, 2.), (12, 1.)]
    assert [(p.iteration, p.epoch, p.values['accuracy/top1']) for p in curves.points if p.evaluation] == [
        (4, 1, 50.), (8, 2, 70.), (12, 3, 60.)]
    assert curves.main_metrics() == ['accuracy/top1']
    assert curves.best('accuracy/top1').epoch == curves.best('accuracy/loss').epoch == 2
    assert curves.last('accuracy/top1').epoch == 3


def test_runs_that_count_iterations(tmp_path):
    write(tmp_path, 'a', {'mine': 3., 'step': 40}, trained(50, 1.), {'mine': 2., 'step': 80}, trained(100, 1.),
          {'mine': 7., 'step': 80})  # evaluated again
    curves = Curves(tmp_path)
    assert [(p.iteration, p.epoch, p.values['mine']) for p in curves.find('mine')] == [(40, None, 3.), (80, None, 7.)]
    assert curves.main_metrics() == ['mine']
    assert curves.best('mine') is None
    (tmp_path / 'best_mine_iter_40.pth').touch()  # the run knows that less of it is better
    assert curves.best('mine').values['mine'] == 3.
