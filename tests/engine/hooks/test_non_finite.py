"""Losses, weights and images that are not finite, and images that cannot be read."""
from types import SimpleNamespace

import pytest
import torch
from load_tool import run_tool
from tiny_training import load, write_config

from cvt_dense.engine import NonFiniteLossHook, UnreadableImagesHook
from cvt_dense.errors import UserError


def test_a_run_stops_and_keeps_its_last_checkpoint(tmp_path):
    args = 'train', write_config(tmp_path), '--work-dir', tmp_path / 'work'
    run_tool(*args, '--cfg-options', 'train_cfg.max_epochs=1')
    before = (tmp_path / 'work/epoch_1.pth').read_bytes()
    state = load(tmp_path / 'work/epoch_1.pth')
    state['ema_state_dict']['module.head.bias'][0] = float('inf')  # raw weights: training goes on with them
    torch.save(state, tmp_path / 'work/broken.pth')
    assert 'iteration 4' in run_tool(*args, '--resume', tmp_path / 'work/broken.pth', rc=2)
    assert (tmp_path / 'work/epoch_1.pth').read_bytes() == before and not (tmp_path / 'work/epoch_2.pth').exists()
    saved = load(tmp_path / 'work/nonfinite_iter4_rank0.pth')
    assert saved['iter'] == 3 and saved['data_batch']['inputs'].shape == (12, 3, 32, 32)


def test_weights_that_are_not_finite_are_not_saved():
    state_dict = dict(weight=torch.tensor([1., torch.inf]), count=torch.tensor(3))
    with pytest.raises(UserError, match='weight'):
        NonFiniteLossHook().before_save_checkpoint(SimpleNamespace(iter=5), dict(state_dict=state_dict))


def test_images_that_are_not_finite_are_named(tmp_path):
    batch = dict(inputs=[torch.zeros(3, 2, 2), torch.full((3, 2, 2), torch.nan)],
                 data_samples=[dict(img_path='good.tif'), dict(img_path='bad.tif')])
    runner = SimpleNamespace(work_dir=str(tmp_path), iter=0, epoch=0, rank=0, seed=0)
    with pytest.raises(UserError, match=r'bad\.tif') as caught:
        NonFiniteLossHook().after_train_iter(runner, 0, batch, dict(loss=torch.tensor(torch.nan)))
    assert 'good.tif' not in str(caught.value)


def test_a_file_is_counted_once_whatever_the_reason():
    """Pillow's reason for a file read through a backend contains a memory address."""
    warnings = []
    runner = SimpleNamespace(train_dataloader=SimpleNamespace(dataset=range(100)),
                             logger=SimpleNamespace(warning=warnings.append))
    hook = UnreadableImagesHook(max_share=0.01)
    for epoch in range(20):
        hook.before_train_iter(runner, 0, dict(unreadable=['', f'a/1.png\tno image file <BytesIO at 0x7f{epoch}>']))
        hook.after_train_epoch(runner)
    assert sum('a/1.png' in text for text in warnings) == 1
