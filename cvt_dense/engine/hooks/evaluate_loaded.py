"""Compute detection scores of the loaded images only, also for a detector that finds nothing."""
from itertools import zip_longest
from typing import Any

from mmengine.dist import all_gather_object
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner

from ...console import prints_to_log
from ...registry import HOOKS

# What MMDetection's CocoMetric returns unless metric_items are given.
COCO_ITEMS = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')


class LoadedImagesEvaluator(Evaluator):
    """MMEngine's ``Evaluator`` in which COCO and LVIS metrics score the images that were loaded.

    MMDetection's ``CocoMetric`` scores every image of its annotation file: those that the data set leaves out
    (``indices``, a filter, a subset) count as images in which everything was missed. It also returns no score
    for a detector that finds nothing in any image, as an untrained one does; here every score is 0 then. Metrics of
    other kinds are not changed. The output that packages print meanwhile goes to the log file.
    """

    def evaluate(self, size: int) -> dict[str, float]:
        scores: dict[str, float] = {}
        rest = []
        for metric in self.metrics:
            if hasattr(metric, 'img_ids') and not _restrict(metric) and _has_scores_only(metric):
                metric.results.clear()
                scores.update(_zeros(metric))
            else:
                rest.append(metric)
        with prints_to_log():
            scores.update(Evaluator(rest).evaluate(size))
        return scores


def _restrict(metric: Any) -> bool:
    """Let ``metric`` score the images of its results in all processes; return whether there may be a detection."""
    ids: list[Any] | None = None
    if all(isinstance(result, tuple) and 'img_id' in result[-1] for result in metric.results):
        ids = [prediction['img_id'] for _, prediction in metric.results]
    found = ids is None or any(len(prediction.get('scores', ())) for _, prediction in metric.results)
    everywhere = all_gather_object((ids, found))
    if all(ids is not None for ids, _ in everywhere):  # otherwise of another kind, e.g. panoptic statistics
        # In the order of the collected results, on which CocoMetric's proposal_fast relies.
        ordered = [one for several in zip_longest(*(ids for ids, _ in everywhere)) for one in several]
        metric.img_ids = [one for one in dict.fromkeys(ordered) if one is not None]
    return any(found for _, found in everywhere)


def _has_scores_only(metric: Any) -> bool:
    """Return whether a metric gives :data:`COCO_ITEMS` and writes no file of predictions."""
    return (type(metric).__name__ == 'CocoMetric' and metric.outfile_prefix is None
            and set(metric.metrics) <= {'bbox', 'segm'})


def _zeros(metric: Any) -> dict[str, float]:
    """Return the scores of a detector that finds nothing."""
    MMLogger.get_current_instance().info(
        f'No detection in {len(metric.img_ids)} images, as is usual for a detector that has hardly been trained: every '
        'score is 0.')
    names = [f'{kind}_{item}' for kind in metric.metrics for item in metric.metric_items or COCO_ITEMS]
    return {f'{metric.prefix}/{name}' if metric.prefix else name: 0. for name in names}


@HOOKS.register_module()
class EvaluateLoadedHook(Hook):
    """Evaluate with :class:`LoadedImagesEvaluator` where a config has MMEngine's ``Evaluator``."""

    def before_val(self, runner: Runner) -> None:
        self._replace(runner.val_loop)

    def before_test(self, runner: Runner) -> None:
        self._replace(runner.test_loop)

    @staticmethod
    def _replace(loop: Any) -> None:
        if type(loop.evaluator) is Evaluator:
            meta = loop.evaluator.dataset_meta
            loop.evaluator = LoadedImagesEvaluator(loop.evaluator.metrics)
            loop.evaluator.dataset_meta = meta
