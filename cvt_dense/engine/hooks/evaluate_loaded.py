"""Detection scores of the images that were loaded, and of a detector that finds nothing."""
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.runner import Runner

from ...registry import HOOKS


@HOOKS.register_module()
class EvaluateLoadedHook(Hook):
    """Lets COCO and LVIS metrics score the images that were loaded, and score 0 where nothing was detected.

    MMDetection's ``CocoMetric`` scores every image of its annotation file: those that the data set leaves out
    (``indices``, a filter, a subset) count as images in which everything was missed. And it has no score at all
    for a detector that finds nothing in any image, as an untrained one does. Metrics of other kinds score what
    they are given and stay as they are.
    """

    def before_val_epoch(self, runner: Runner) -> None:
        _evaluate_loaded(runner.val_loop.evaluator)

    def before_test_epoch(self, runner: Runner) -> None:
        _evaluate_loaded(runner.test_loop.evaluator)


def _evaluate_loaded(evaluator: Evaluator) -> None:
    for metric in evaluator.metrics:
        if hasattr(metric, 'img_ids') and 'compute_metrics' not in vars(metric):
            metric.compute_metrics = partial(_compute, metric, metric.compute_metrics)


def _compute(metric: Any, compute_metrics: Callable[[list], dict[str, Any]], results: list) -> dict[str, Any]:
    """``compute_metrics(results)`` of the images in ``results``: pairs of a ground truth and a prediction."""
    if not all(isinstance(result, tuple) and 'img_id' in result[-1] for result in results):
        return compute_metrics(results)  # of another kind, e.g. panoptic statistics
    # In the order of the results, on which CocoMetric's proposal_fast relies.
    metric.img_ids = list(dict.fromkeys(prediction['img_id'] for _, prediction in results))
    api = getattr(metric, '_coco_api', None) or getattr(metric, '_lvis_api', None)
    left_out = len(api.imgs) - len(metric.img_ids) if api else 0
    if left_out > 0:
        print_log(f'Scores are of the {len(metric.img_ids)} images that were loaded; the annotation file has '
                  f'{left_out} more.', logger='current')
    if not any(len(prediction.get('scores', ())) for _, prediction in results):
        print_log(f'No detection in {len(results)} images, as is usual for a detector that has hardly been trained: '
                  'every score is 0.', logger='current')
    with _empty_results():
        return compute_metrics(results)


@contextmanager
def _empty_results() -> Iterator[None]:
    """``pycocotools`` makes a set without detections of an empty list, where it raises IndexError otherwise."""
    try:
        from pycocotools.coco import COCO
    except ImportError:  # a metric that does without
        yield
        return
    load = COCO.loadRes

    def load_results(self: COCO, results: Any) -> COCO:
        if not isinstance(results, list) or results:
            return load(self, results)
        empty = COCO()
        empty.dataset = dict(images=list(self.dataset['images']), annotations=[],
                             categories=copy.deepcopy(self.dataset['categories']))
        empty.createIndex()
        return empty

    COCO.loadRes = load_results
    try:
        yield
    finally:
        COCO.loadRes = load
