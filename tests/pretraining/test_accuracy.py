"""Accuracy against a count by hand."""
import pytest
import torch
import torch.nn.functional as F

from cvt_dense.pretraining import Accuracy


def samples(logits, labels):
    return [dict(logits=row, label=int(label)) for row, label in zip(logits, labels)]


def evaluate(data, batch=7, **kwargs):
    metric = Accuracy(**kwargs)
    for i in range(0, len(data), batch):
        metric.process(None, data[i:i + batch])
    return metric.evaluate(len(data))


@pytest.fixture
def data():
    return torch.randn(50, 10), torch.randint(0, 10, (50, ))


def test_top_k_and_loss(data):
    logits, labels = data
    result = evaluate(samples(*data))
    order = logits.argsort(dim=1, descending=True)
    assert result['accuracy/top1'] == pytest.approx(100 * (order[:, 0] == labels).float().mean().item())
    in_five = (order[:, :5] == labels[:, None]).any(1)
    assert result['accuracy/top5'] == pytest.approx(100 * in_five.float().mean().item())
    assert result['accuracy/loss'] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-6)
    assert evaluate(samples(*data), batch=50) == pytest.approx(result)


def test_unreadable_images_are_left_out(data):
    logits, labels = data
    with_gaps = labels.clone()
    with_gaps[::5] = -1
    keep = with_gaps >= 0
    without = evaluate(samples(logits[keep], labels[keep]))
    assert evaluate(samples(logits, with_gaps)) == pytest.approx(without)
    with pytest.raises(ValueError):
        evaluate(samples(logits[:1], [-1]))


def test_outputs_that_are_not_finite_are_wrong():
    logits = torch.full((20, 10), float('nan'))
    result = evaluate(samples(logits, torch.arange(20) % 10))
    assert result['accuracy/top1'] == result['accuracy/top5'] == 0
