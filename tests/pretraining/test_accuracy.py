"""Accuracy against a count by hand."""
import json

import pytest
import torch
import torch.nn.functional as F

from cvt_dense.pretraining import Accuracy


def samples(logits, labels):
    return [dict(logits=row, label=int(label), path=f'n01/ILSVRC2012_val_{i + 1:08d}.JPEG')
            for i, (row, label) in enumerate(zip(logits, labels))]


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


def test_valid_classes_restrict_the_outputs():
    valid = [7, 1, 4]
    logits = torch.randn(40, 10)
    labels = torch.tensor(valid)[torch.randint(0, 3, (40, ))]
    labels[3] = -1
    result = evaluate(samples(logits, labels), topk=(1, 2), valid_classes=valid)
    hits = {1: 0, 2: 0}
    for row, label in zip(logits, labels.tolist()):
        ranking = sorted(valid, key=lambda c: -row[c])
        for k in hits:
            hits[k] += label >= 0 and label in ranking[:k]
    assert result['accuracy/top1'] == pytest.approx(100 * hits[1] / 39)
    assert result['accuracy/top2'] == pytest.approx(100 * hits[2] / 39)
    with pytest.raises(ValueError, match='val_00000001.JPEG.*valid_classes'):
        evaluate(samples(logits[:1], [2]), valid_classes=valid)


def test_real_labels(data, tmp_path):
    logits, labels = data
    real = [[int(label), (int(label) + 1) % 10] if i % 4 else [] for i, label in enumerate(labels)]
    (tmp_path / 'real.json').write_text(json.dumps(real))
    result = evaluate(samples(*data), topk=(1, ), real_labels=str(tmp_path / 'real.json'))
    predictions = logits.argmax(dim=1).tolist()
    hits = [prediction in classes for prediction, classes in zip(predictions, real) if classes]
    assert 0 < sum(hits) < len(hits)
    assert result['accuracy/real_top1'] == pytest.approx(100 * sum(hits) / len(hits))
    renamed = [dict(sample, path='n01/cat.JPEG') for sample in samples(*data)]
    with pytest.raises(ValueError, match='n01/cat.JPEG.*real_labels'):
        evaluate(renamed, real_labels=str(tmp_path / 'real.json'))


def test_outputs_that_are_not_finite_are_wrong():
    logits = torch.full((20, 10), float('nan'))
    result = evaluate(samples(logits, torch.arange(20) % 10))
    assert result['accuracy/top1'] == result['accuracy/top5'] == 0
