"""Atomic writing: a crash or a full disk leaves either the complete new file or what was there before."""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = '.partial-'  # files that are being written have this prefix


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield another path in the folder of ``path``, and rename what was written there to ``path`` at the end.

    The other path has the same suffix. If the block raises, the unfinished file is removed and ``path`` stays as it
    was. Missing folders are created. ::

        with atomic_path('model.pth') as partial:
            torch.save(model.state_dict(), partial)

    Raises:
        OSError: the file cannot be written; the message names ``path``.
    """
    path = Path(path)
    partial = path.with_name(PREFIX + path.name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with open(partial, 'rb+') as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise OSError(error.errno, f'{error.strerror or error}: {path} could not be written') from error
    finally:
        partial.unlink(missing_ok=True)


def write_atomically(path: str | Path, data: bytes | str) -> None:
    """Write a whole file; see :func:`atomic_path`."""
    with atomic_path(path) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)
