"""ProgressiveSizeHook: the size of the training images follows from the epoch or iteration, also after a resume."""
from types import SimpleNamespace

import pytest
import torch
from mmengine.runner import EpochBasedTrainLoop, IterBasedTrainLoop

from cvt_dense.engine import ProgressiveSizeHook
from cvt_dense.pretraining import ClassificationPreprocessor

BATCH = dict(inputs=torch.zeros(2, 3, 64, 64, dtype=torch.uint8), labels=torch.tensor([0, 1]))


@pytest.mark.parametrize('loop, count', [(EpochBasedTrainLoop, 'epoch'), (IterBasedTrainLoop, 'iter')])
def test_size_follows_from_what_the_loop_counts(loop, count):
    model = SimpleNamespace(data_preprocessor=ClassificationPreprocessor(num_classes=2))
    hook = ProgressiveSizeHook({0: 32, 2: 48, 3: None})
    for now, side in ((3, 64), (0, 32), (1, 32), (2, 48), (4, 64)):
        counts = {'epoch': 0, 'iter': 9, count: now}
        hook.before_train_iter(SimpleNamespace(model=model, train_loop=loop.__new__(loop), **counts), 0)
        assert model.data_preprocessor(BATCH, training=True)['inputs'].shape[-2:] == (side, side)
        assert model.data_preprocessor(BATCH)['inputs'].shape[-2:] == (64, 64)
