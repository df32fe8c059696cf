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
    with pytest.raises(ValueError, match='max_share'):
        UnreadableImagesHook(max_share=5)


def test_a_file_is_counted_once_whatever_the_reason():
    """Pillow's reason for a file read through a backend contains a memory address."""
    warnings = []
    runner = SimpleNamespace(train_dataloader=SimpleNamespace(dataset=range(100)),
                             logger=SimpleNamespace(warning=warnings.append))
    hook = UnreadableImagesHook(max_share=0.02)
    for epoch in range(20):
        hook.before_train_iter(runner, 0, dict(unreadable=['', f'a/1.png\tno image file <BytesIO at 0x7f{epoch}>']))
        hook.after_train_epoch(runner)
    assert sum('a/1.png' in text for text in warnings) == 1
    with pytest.raises(UserError, match='3 of the 100'):
        hook.before_train_iter(runner, 0, dict(unreadable=['a/2.png\tx', 'a/3.png\ty\na/2.png\tz']))
