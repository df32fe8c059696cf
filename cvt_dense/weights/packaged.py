"""Weights that are files of this package, under URLs ``cvt_dense://NAME``."""
from pathlib import Path

from ..errors import CheckpointError

SCHEME = 'cvt_dense://'
FOLDER = Path(__file__).parent / 'files'
NAMES = ('cvt-nano', )


def packaged_file(url: str) -> Path:
    """Return the file of weights of this package.

    Args:
        url: ``cvt_dense://cvt-nano``.

    Raises:
        CheckpointError: there are no such weights.
    """
    name = url.removeprefix(SCHEME)
    if name not in NAMES:
        raise CheckpointError(f'{url}: the weights in this package are {", ".join(NAMES)}.')
    return FOLDER / f'{name.replace("-", "_")}.safetensors'
