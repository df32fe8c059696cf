"""ImageClassifier, its preprocessor, and its metric against a count by hand."""
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from cvt_dense.pretraining import Accuracy, ClassificationPreprocessor, ImageClassifier

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
BATCH = dict(labels=torch.tensor([0, 1, 2, 3]), paths=['a', 'b', 'c', 'd'])


def build(out_type='cls_token', **preprocessor):
    return ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type=out_type), num_classes=5,
                           data_preprocessor=dict(type='cvt_dense.ClassificationPreprocessor', **preprocessor))


def batch():
    inputs = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    return dict(BATCH, inputs=inputs, unreadable=[''] * 4)


@pytest.mark.parametrize('out_type', ['cls_token', 'avg_featmap'])
def test_modes_and_gradients(out_type):
    model = build(out_type)
    assert set(name for name, _ in model.named_parameters() if not name.startswith('backbone.')) == {
        'head.weight', 'head.bias'}
    assert not model.head.bias.any() and abs(model.head.weight.std().item() - 0.02) < 0.004
    data = model.data_preprocessor(batch(), training=True)
    assert model(data['inputs']).shape == (4, 5)
    loss = model(**data, mode='loss')['loss']
    loss.backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    # Keys' biases cancel in the softmax. The CLS token skips the last block's convolution of q.
    allowed = ['proj_k.bias'] + ['stage2.blocks.0.attn.conv_proj_q'] * (out_type == 'cls_token')
    assert [name for name in unused if not any(part in name for part in allowed)] == []
    model.eval()
    results = model.val_step(batch())
    assert len(results) == 4 and set(results[0]) == {'logits', 'pred_label', 'label', 'path'}
    assert [r['label'] for r in results] == [0, 1, 2, 3] and results[3]['path'] == 'd'
    assert results[1]['pred_label'] == int(results[1]['logits'].argmax())


def test_plain_loss_is_cross_entropy_in_float32():
    model = build()
    data = model.data_preprocessor(batch(), training=True)
    assert data['labels'].dtype == torch.int64
    model.eval()
    expected = F.cross_entropy(model(data['inputs']), BATCH['labels'])
    torch.testing.assert_close(model(**data, mode='loss')['loss'], expected)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert model(**data, mode='loss')['loss'].dtype == torch.float32


def test_normalisation_in_evaluation_does_nothing_else():
    preprocessor = ClassificationPreprocessor(
        num_classes=5, label_smoothing=0.1, random_erasing=dict(probability=1., mode='pixel'),
        mixup=dict(mixup_alpha=0.8, cutmix_alpha=1.))
    data = batch()
    out = preprocessor(data, training=False)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(out['inputs'], (data['inputs'] / 255 - mean) / std)
    assert torch.equal(out['labels'], BATCH['labels']) and 'unreadable' not in out
    assert data['inputs'].dtype == torch.uint8


def test_mixup_mixes_images_and_labels_alike():
    preprocessor = ClassificationPreprocessor(
        num_classes=5, label_smoothing=0., mixup=dict(mixup_alpha=0.8, cutmix_alpha=0.))
    np.random.seed(0)
    data = batch()
    out = preprocessor(data, training=True)
    plain = preprocessor(data, training=False)['inputs']
    lam = out['labels'][0, 0]
    assert 0 < lam < 1
    torch.testing.assert_close(out['inputs'], plain * lam + plain.flip(0) * (1 - lam))
    torch.testing.assert_close(out['labels'][0], torch.tensor([lam, 0, 0, 1 - lam, 0]))


def test_erasing_and_smoothing_where_nothing_is_mixed():
    preprocessor = ClassificationPreprocessor(
        num_classes=5, label_smoothing=0.1, random_erasing=dict(probability=1., mode='pixel'))
    data = batch()
    out = preprocessor(data, training=True)
    torch.testing.assert_close(out['labels'], torch.full((4, 5), 0.02) + 0.9 * torch.eye(5)[:4])
    erased = (out['inputs'] != preprocessor(data, training=False)['inputs']).flatten(1)
    assert erased.any(1).all() and not erased.all(1).any()


def test_a_backbone_that_returns_maps_is_refused():
    with pytest.raises(ValueError, match='out_type'):
        build('featmap')


# -- accuracy --------------------------------------------------------------------------------------


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
