"""Hooks of pretraining, as far as whole runs (tests/test_train_classifier.py) do not show them."""
from types import SimpleNamespace

import pytest
import torch

from cvt_dense.engine import NonFiniteLossHook, UnreadableImagesHook
from cvt_dense.errors import UserError


@pytest.mark.parametrize('value', [float('nan'), float('-inf')])
def test_checkpoint_with_a_bad_weight_is_not_written(value):
    state = dict(weight=torch.ones(3), count=torch.tensor(7))
    NonFiniteLossHook().before_save_checkpoint(SimpleNamespace(iter=5), dict(state_dict=state))
    state['bias'] = torch.tensor([0., value])
    with pytest.raises(UserError, match=r'1 weights are not finite after iteration 5 \(first: bias\)'):
        NonFiniteLossHook().before_save_checkpoint(SimpleNamespace(iter=5), dict(state_dict=state))


def test_share_of_unreadable_images_is_checked():
    with pytest.raises(ValueError, match='max_share=5: allowed is 0 to 1'):
        UnreadableImagesHook(max_share=5)
