"""The checkpoint that a run continues from."""
import os
from pathlib import Path

import pytest
import torch

from cvt_dense.engine.checkpoint import find_checkpoint
from cvt_dense.errors import UserError


def write(path: Path, iteration: int) -> None:
    """Write a checkpoint; the more iterations it has, the older is its file."""
    torch.save(dict(weight=torch.zeros(9), meta=dict(iter=iteration)), path)
    os.utime(path, (1e9 - iteration, 1e9 - iteration))


def test_find_checkpoint(tmp_path):
    first, moved = tmp_path / 'first', tmp_path / 'moved'
    for folder in (first, moved):
        folder.mkdir()
        assert find_checkpoint(str(folder)) is None
        write(folder / 'epoch_7.pth', 70)
        write(folder / 'epoch_8.pth', 80)
        (folder / 'last_checkpoint').write_text(str(first / 'epoch_8.pth'))
    assert find_checkpoint(str(moved)) == str(moved / 'epoch_8.pth')  # the copy of what last_checkpoint names
    (moved / 'epoch_8.pth').rename(moved / 'away')
    assert find_checkpoint(str(moved)) == str(first / 'epoch_8.pth')  # the one that last_checkpoint names
    (moved / 'away').rename(moved / 'epoch_8.pth')
    (moved / 'last_checkpoint').write_text('/gone/epoch_8.pth')
    assert find_checkpoint(str(moved)) == str(moved / 'epoch_8.pth')
    (moved / 'epoch_8.pth').write_bytes((moved / 'epoch_8.pth').read_bytes()[:-100])  # torn
    assert find_checkpoint(str(moved)) == str(moved / 'epoch_7.pth')
    (moved / 'last_checkpoint').write_text('')
    assert find_checkpoint(str(moved)) == str(moved / 'epoch_7.pth')
    (moved / 'epoch_7.pth').write_text('torn')
    with pytest.raises(UserError, match='epoch_7.pth'):
        find_checkpoint(str(moved))


def test_iterations_decide_where_last_checkpoint_is_missing(tmp_path):
    for number in (1, 2, 10):
        write(tmp_path / f'epoch_{number}.pth', number * 10)
    assert find_checkpoint(str(tmp_path)) == str(tmp_path / 'epoch_10.pth')
    write(tmp_path / 'preempted.pth', 93)
    assert find_checkpoint(str(tmp_path)) == str(tmp_path / 'epoch_10.pth')
    write(tmp_path / 'preempted.pth', 103)
    assert find_checkpoint(str(tmp_path)) == str(tmp_path / 'preempted.pth')
