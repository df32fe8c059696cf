"""Fine-tuning on other classes: what the head keeps and what is new, by the classes' names."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import MMLogger
from mmengine.runner import EpochBasedTrainLoop
from torch import nn

from cvt_dense.engine.hooks import HeadClassesHook
from cvt_dense.models import ImageClassifier

ARCH = dict(embed_dims=(8, 24, 48), depths=(1, 1, 1), num_heads=(1, 3, 6))
THREE = ['cat', 'frog', 'ship']


def classifier(outputs):
    model = ImageClassifier(dict(type='cvt_dense.CvT', arch=ARCH, out_type='cls_token'), num_classes=outputs)
    nn.init.normal_(model.head.bias)
    return model


@pytest.fixture
def load(caplog):
    """Calls the hook; returns the model's tensors, the checkpoint's before and after, and the log."""

    def call(old, new, model, given, resume=False):
        runner = SimpleNamespace(
            _resume=resume, _train_loop=EpochBasedTrainLoop.__new__(EpochBasedTrainLoop), model=model,
            train_dataloader=SimpleNamespace(dataset=SimpleNamespace(metainfo=dict(classes=tuple(new)))))
        given = given.state_dict()
        checkpoint = dict(state_dict=dict(given), meta=dict(dataset_meta=dict(classes=tuple(old))))
        HeadClassesHook().after_load_checkpoint(runner, checkpoint)
        return model.state_dict(), given, checkpoint['state_dict'], caplog.text

    logger = MMLogger.get_current_instance()
    logger.addHandler(caplog.handler)
    torch.manual_seed(1)
    yield call
    logger.removeHandler(caplog.handler)


@pytest.mark.parametrize('outputs, new, rows, line', [
    (3, THREE, [0, 1, 2], '3 of 3 classes kept by name (cat, frog, ship), 0 new (none), 0 of the'),
    (3, ['dog', 'truck', 'bird'], [None] * 3, '0 of 3 classes kept by name (none), 3 new (dog, truck, bird), 3'),
    (3, ['ship', 'cat', 'frog'], [2, 0, 1], '3 of 3 classes kept by name (ship, cat, frog)'),
    (3, ['bird', 'cat', 'frog', 'ship'], [None, 0, 1, 2], '3 of 4 classes kept by name (cat, frog, ship), 1 new'),
    (7, THREE, [0, 1, 2], '3 of 3 classes kept by name'),  # trained with more outputs than classes
    (7, ['bird', 'frog'], [None, 1], '1 of 2 classes kept by name (frog), 1 new (bird), 2 of the'),
])
def test_rows_follow_names(load, outputs, new, rows, line):
    own, given, loaded, log = load(THREE, new, classifier(len(new)), classifier(outputs))
    for key in ('head.weight', 'head.bias'):
        assert loaded[key].shape == own[key].shape
        for i, row in enumerate(rows):
            assert torch.equal(loaded[key][i], own[key][i] if row is None else given[key][row])
    assert all(torch.equal(loaded[key], given[key]) for key in given if not key.startswith('head.'))
    assert line in log


def test_a_resumed_run_is_left_alone(load):
    _, given, loaded, log = load(THREE, THREE[::-1], classifier(3), classifier(3), resume=True)
    assert torch.equal(loaded['head.weight'], given['head.weight']) and 'head: ' not in log


def test_heads_of_other_models_are_loaded_as_they_are(load):
    _, given, loaded, log = load(THREE, ['dog', 'cat'], nn.Linear(2, 2), nn.Linear(2, 2))
    assert torch.equal(loaded['weight'], given['weight'])
    assert "3 classes (cat, frog, ship) are not the training set's 2 (dog, cat): a head of equal shape" in log
