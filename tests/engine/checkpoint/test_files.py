"""The checkpoint that a run continues from."""
import os
from pathlib import Path

import torch

from cvt_dense.engine.checkpoint import find_checkpoint


def write(path: Path, age: int) -> None:
    torch.save(dict(weight=torch.zeros(9)), path)
    os.utime(path, (1e9 - age, 1e9 - age))


def test_find_checkpoint(tmp_path):
    first, moved = tmp_path / 'first', tmp_path / 'moved'
    for folder in (first, moved):
        folder.mkdir()
        assert find_checkpoint(str(folder)) is None
        write(folder / 'epoch_7.pth', age=2)
        write(folder / 'epoch_8.pth', age=1)
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
