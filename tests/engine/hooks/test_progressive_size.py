"""ProgressiveSizeHook: the size of the training images follows from the epoch, also after a resume."""
from types import SimpleNamespace

import torch

from cvt_dense.engine import ProgressiveSizeHook
from cvt_dense.models import ClassificationPreprocessor

BATCH = dict(inputs=torch.zeros(2, 3, 64, 64, dtype=torch.uint8), labels=torch.tensor([0, 1]))


def test_size_follows_from_the_epoch():
    preprocessor = ClassificationPreprocessor(num_classes=2)
    model = SimpleNamespace(data_preprocessor=preprocessor)
    hook = ProgressiveSizeHook({0: 32, 2: 48, 3: None})
    for epoch, side in ((3, 64), (0, 32), (1, 32), (2, 48), (4, 64)):
        hook.before_train_epoch(SimpleNamespace(model=model, epoch=epoch))
        assert preprocessor(BATCH, training=True)['inputs'].shape[-2:] == (side, side)
        assert preprocessor(BATCH)['inputs'].shape[-2:] == (64, 64)
