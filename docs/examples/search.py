"""Search the learning rate and the drop path of mine.py with Optuna; docs/guides/choosing.md explains it."""
import subprocess
import sys
import time
from contextlib import suppress

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import MaxTrialsCallback
from optuna.trial import TrialState

from cvt_dense.curves import Curves

METRIC, TRIALS = 'accuracy/top1', 12
FOLDS = ['data/fold0', 'data/fold1']  # of tools/convert_data.py --split 0.8,0.2 --seed 0, 1, ...; or one folder


def objective(trial):
    """Train on each fold and return the mean of the last metrics."""
    options = [f'optim_wrapper.optimizer.lr={trial.suggest_float("lr", 1e-4, 1e-1, log=True)}',
               f'model.backbone.drop_path_rate={trial.suggest_float("drop_path", 0., 0.3)}']
    values, last = [], []  # the validation curve, one fold after the other; the last value of each fold
    for fold, data in enumerate(FOLDS):
        folder, before = f'work_dirs/search/trial{trial.number}_fold{fold}', len(values)
        run = subprocess.Popen([sys.executable, 'tools/train.py', 'mine.py', '--work-dir', folder, '--data-root', data,
                                '--cfg-options', *options])
        try:
            while run.returncode is None:
                time.sleep(1)
                run.poll()
                with suppress(FileNotFoundError):  # no curve yet
                    for point in Curves(folder).find(METRIC)[len(values) - before:]:
                        trial.report(point.values[METRIC], len(values))
                        values.append(point.values[METRIC])
                if trial.should_prune():
                    raise optuna.TrialPruned
        finally:
            run.terminate()  # it saves a checkpoint and ends
        if run.wait():
            raise RuntimeError(f'{folder} failed')
        last.append(values[-1])
    return sum(last) / len(last)


study = optuna.create_study(
    study_name='lr and drop path', direction='maximize', load_if_exists=True,
    storage=JournalStorage(JournalFileBackend('search.journal')))
study.optimize(objective, catch=RuntimeError, callbacks=[
    MaxTrialsCallback(TRIALS, states=[TrialState.COMPLETE, TrialState.PRUNED])])
print(study.best_trial)
