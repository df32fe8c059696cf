"""Search the learning rate and the drop path of mine.py with Optuna; docs/guides/choosing.md explains it."""
import optuna

from cvt_dense import train

METRIC, TRIALS = 'accuracy/top1', 12
FOLDS = ['data/fold0', 'data/fold1']  # of tools/convert_data.py --split 0.8,0.2 --seed 0, 1, ...; or one folder


def objective(trial):
    """Train on each fold and return the mean of the last metrics."""
    options = {'optim_wrapper.optimizer.lr': trial.suggest_float('lr', 1e-4, 1e-1, log=True),
               'model.backbone.drop_path_rate': trial.suggest_float('drop_path', 0., 0.3)}
    values, last = [], []  # the validation curve, one fold after the other; the last value of each fold

    def report(_, metrics):
        values.append(metrics[METRIC])
        trial.report(values[-1], len(values))
        return trial.should_prune()  # the training ends if so
    for i, fold in enumerate(FOLDS):
        folder = f'work_dirs/search/{trial.number}_{i}'
        if train('mine.py', report, data_root=fold, work_dir=folder, options=options).stopped:
            raise optuna.TrialPruned if trial.should_prune() else KeyboardInterrupt
        last.append(values[-1])
    return sum(last) / len(last)


study = optuna.create_study(study_name='mine', storage='sqlite:///search.db', direction='maximize', load_if_exists=True)
study.optimize(objective, n_trials=TRIALS)
print(study.best_trial)
