"""Files are complete or as they were before."""
import errno
import resource
from contextlib import contextmanager

import pytest

from cvt_dense.atomic import atomic_path, write_atomically


def test_new_file_and_replaced_file(tmp_path):
    path = tmp_path / 'folder/model.pth'
    write_atomically(path, b'first')
    with atomic_path(path) as partial:
        assert partial.parent == path.parent and partial.suffix == '.pth'
        partial.write_bytes(b'second')
        assert path.read_bytes() == b'first'
    assert path.read_bytes() == b'second' and list(path.parent.iterdir()) == [path]


@contextmanager
def files_of_at_most_a_kilobyte():
    """Let the system refuse writes beyond 1 KiB, as on a full disk; not for long, because pytest writes files too."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / 'model.bin'
    write_atomically(path, b'old')
    with pytest.raises(OSError, match='model.bin') as raised, files_of_at_most_a_kilobyte():
        write_atomically(path, bytes(4096))
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]
