"""Which metric counts, and whether more or less of it is better."""
from types import SimpleNamespace

import pytest

from cvt_dense.errors import UserError
from cvt_dense.metrics import Metric, main_metrics, rule_of

# CocoMetric with classwise=True puts the classes first; RawWeightsHook and ValLossHook add the last two.
COCO = {'A/coco/cat_precision': 0.2, 'A/coco/bbox_mAP': 0.3, 'raw/A/coco/bbox_mAP': 0.4, 'val/loss': 1.}


@pytest.mark.parametrize('name, rule', [
    ('accuracy/top1', 'greater'), ('accuracy/loss', 'less'), ('val/loss', 'less'), ('coco/bbox_mAP_50', 'greater'),
    ('B/coco/segm_mAP', 'greater'), ('mIoU', 'greater'), ('MAE', 'less'), ('depth/abs_rel', 'less'),
    ('top1_error', 'less'), ('coco_panoptic/PQ', 'greater'), ('mine', None)])
def test_the_rule_follows_from_the_name(name, rule):
    assert rule_of(name) == rule


def test_the_usual_metric_is_chosen_before_that_of_a_class():
    assert main_metrics(COCO) == ['A/coco/bbox_mAP'] and main_metrics(['mine', 'yours']) == ['mine']
    assert main_metrics(['x/AP50', 'x/mAP']) == ['x/mAP']
    metric = Metric('save_best', 'auto')
    assert metric.score(COCO) == 0.3 and metric.name == 'A/coco/bbox_mAP'


def test_less_may_be_better():
    assert Metric('save_best', 'mine', 'less').score(dict(mine=3.)) == -3
    for rule in (None, 'smaller'):
        with pytest.raises(UserError):
            Metric('save_best', 'mine', rule)


def test_a_wrong_name_is_an_error_and_a_missing_result_is_not():
    assert Metric('save_best', 'B/coco/bbox_mAP').score(COCO) is None  # no object was detected on B
    assert Metric('save_best', 'mIoU').score({'raw/mIoU': 1.}) is None
    for name in ('bbox_mAP', 'A/coco/segm_mAP'):
        with pytest.raises(UserError):
            Metric('save_best', name).score(COCO)
    evaluator = SimpleNamespace(metrics=[SimpleNamespace(prefix='coco')])
    for name in ('auto', 'A/coco/bbox_mAP', 'raw/coco/bbox_mAP'):
        Metric('save_best', name).check(evaluator)
    with pytest.raises(UserError, match='coco/'):
        Metric('save_best', 'voc/mAP').check(evaluator)
