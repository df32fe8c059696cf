"""End a training whose metric no longer improves, also if it was resumed in between."""
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...metrics import Metric
from ...registry import HOOKS


@HOOKS.register_module()
class EarlyStoppingHook(Hook):
    """End a training after some evaluations without a better result.

    MMEngine's ``EarlyStoppingHook`` counts an improvement by less than 0.1, which is much for a mAP, as none, and it
    starts to count again when a run is resumed. This hook counts every improvement and keeps its state in the
    checkpoints, so that a resumed run ends where an uninterrupted one does.

    Args:
        monitor: a metric of the evaluation, such as 'coco/bbox_mAP'; 'auto': the usual metric of the task.
        patience: evaluations without a better result after which the training ends, from 1.
        rule: 'less' or 'greater', whichever value is better. Default: as the metric's name tells.

    Raises:
        ValueError: ``patience`` is below 1.
        UserError: the rule is not known, or an evaluation has no such metric.
    """

    priority = 'HIGH'  # before SafeCheckpointHook saves the state

    def __init__(self, monitor: str, patience: int, rule: str | None = None):
        if patience < 1:
            raise ValueError(f'patience={patience!r}: allowed is a whole number from 1.')
        self.metric, self.patience = Metric('monitor', monitor, rule), patience

    def before_train(self, runner: Runner) -> None:
        self.metric.check(getattr(runner.val_loop, 'evaluator', None))
        self._stop_if_due(runner)

    def after_val_epoch(self, runner: Runner, metrics: dict[str, float] | None = None) -> None:
        score = self.metric.score(metrics)
        if score is None:  # the model finds no object yet, or format_only is set
            return
        best, waited = runner.message_hub.runtime_info.get('early_stopping', (float('-inf'), 0))
        runner.message_hub.update_info('early_stopping', (score, 0) if score > best else (best, waited + 1))
        self._stop_if_due(runner)

    def _stop_if_due(self, runner: Runner) -> None:
        waited: Any = runner.message_hub.runtime_info.get('early_stopping', (0., 0))[1]
        if waited >= self.patience and not runner.train_loop.stop_training:
            runner.logger.info(f'{self.metric.name} has not improved in {waited} evaluations: the training ends.')
            runner.train_loop.stop_training = True
