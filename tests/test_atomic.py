"""Files are complete or as they were before."""
import errno

import pytest

from cvt_dense.atomic import atomic_path, write_atomically
from cvt_dense.engine.checkpoint.files import AtomicLocalBackend
from cvt_dense.errors import UserError


def test_new_file_and_replaced_file(tmp_path):
    path = tmp_path / 'folder/model.pth'
    write_atomically(path, b'first')
    with atomic_path(path) as partial:
        assert partial.parent == path.parent and partial.suffix == '.pth'
        partial.write_bytes(b'second')
        assert path.read_bytes() == b'first'
    assert path.read_bytes() == b'second' and list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / 'model.bin'
    write_atomically(path, b'old')
    with pytest.raises(OSError, match='model.bin') as raised, atomic_path(path) as partial:
        partial.write_bytes(b'half of the new on')
        raise OSError(errno.ENOSPC, 'No space left on device')
    with pytest.raises(UserError, match='model.bin'):  # of a checkpoint, one line
        AtomicLocalBackend().put(b'new', path / 'inside')
    assert raised.value.errno == errno.ENOSPC and path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]
